# The environment lives in a cache directory, under a name made from the dependency files: a changed dependency is
# installed anew, an unchanged one serves every checkout.
PYTHON ?= python3
ENSGAP_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ensgap
KEY := $(shell $(PYTHON) -c "import hashlib,sys; print(hashlib.sha256(b''.join(open(f,'rb').read() for f in ('pyproject.toml','constraints.txt'))+sys.version.encode()).hexdigest()[:12])")
ENV := $(ENSGAP_CACHE)/env-$(KEY)
RUN := PYTHONPATH="$(CURDIR)" $(ENV)/bin/python

.PHONY: study test test-slow test-long lint bench env
.DEFAULT_GOAL := study

study: $(ENV)/.complete  ## the main job: the weight decay of a deep ensemble on the embedded digits
	$(RUN) studies/weight_decay.py --task digits --resume

test: $(ENV)/.complete  ## the fast tests
	$(RUN) -m pytest -n 2 --dist loadfile --timeout 600 -m "not slow"

test-slow: $(ENV)/.complete  ## the tests that take longer, as far as they fit into CI
	$(RUN) -m pytest -n 2 --dist loadfile --timeout 600 -m "slow and not long"

test-long: $(ENV)/.complete  ## those that do not
	$(RUN) -m pytest -n 2 --dist loadfile --timeout 600 -m long

lint: $(ENV)/.complete  ## style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

bench: $(ENV)/.complete  ## the stack against a plain loop, as ratios
	$(RUN) -m ensgap.bench --quick

env: $(ENV)/.complete  ## only install, and print where
	@echo $(ENV)

$(ENV)/.complete:
	@echo "Installing the environment once, into $(ENV) (several minutes)"
	rm -rf "$(ENV)"
	$(PYTHON) -m venv "$(ENV)"
	$(ENV)/bin/python -m pip install --quiet --constraint constraints.txt ".[dev]"
	$(ENV)/bin/python -m pip uninstall --quiet --yes ensgap
	touch $@
