"""What figures call the two optima."""

IND_MATH, ENS_MATH = r"$h^*_\mathrm{ind}$", r"$h^*_\mathrm{ens}$"
