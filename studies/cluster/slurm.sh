#!/usr/bin/env bash
# SLURM: a Ray of this job's nodes for one study. From the repository's root, with the Python that has ensgap in PATH:
#
#   sbatch --nodes=4 --gpus-per-node=4 studies/cluster/slurm.sh studies/weight_decay.py --task cifar10 --preset paper
#
# Everything after the script's name is the study; --cluster is added, and so is --resume, so that the same line
# continues a study whose job ended. Its folder must be on a file system that all nodes see.
#SBATCH --job-name=ensgap
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail

# A token for this job alone, in a file that only you can read; Ray's processes and the study find it by these.
umask 077
token=$(mktemp -p "${ENSGAP_TOKENS:-$HOME}" .ensgap-token-XXXXXXXX) # on a file system that all nodes see
python -c "import secrets; print(secrets.token_hex(32), end='')" > "$token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token
export RAY_TMPDIR=/tmp/ensgap-$SLURM_JOB_ID # of each node, and of this job alone

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_ip=$(srun --nodes=1 --ntasks=1 --nodelist="${hosts[0]}" python -c \
  "import ray.util as ray; print(ray.get_node_ip_address())")
port=$((20000 + SLURM_JOB_ID % 10000))
export RAY_ADDRESS=$head_ip:$port

# `ray start --block` ends with its srun, so nothing is left behind, and no `ray stop` touches another job of yours.
start() { # host, then what sets the head apart
  local host=$1; shift
  srun --nodes=1 --ntasks=1 --nodelist="$host" --overlap ray start --block --disable-usage-stats \
    --num-cpus="${SLURM_CPUS_PER_TASK:-1}" "$@" > "ray-$SLURM_JOB_ID-$host.log" 2>&1 &
  pids+=($!)
}
pids=()
stop() { kill "${pids[@]}" 2> /dev/null || true; wait "${pids[@]}" 2> /dev/null || true; rm -f "$token"; }
trap stop EXIT

start "${hosts[0]}" --head --node-ip-address="$head_ip" --port="$port" --dashboard-host=127.0.0.1 --dashboard-port=0
until env -u RAY_ADDRESS ray status --address "$RAY_ADDRESS" > /dev/null 2>&1; do
  kill -0 "${pids[0]}" || { echo "Ray's head did not start; see ray-$SLURM_JOB_ID-${hosts[0]}.log" >&2; exit 1; }
  sleep 1
done
for host in "${hosts[@]:1}"; do start "$host" --address="$RAY_ADDRESS"; done

# The study starts with the nodes that are there; the others join it when they are up. It gets SLURM's TERM, which ends
# it in order two minutes before the time is up.
python "$@" --cluster "$RAY_ADDRESS" --resume &
study=$!
trap 'kill -TERM "$study" 2> /dev/null || true' TERM
status=0
wait "$study" || status=$?
if kill -0 "$study" 2> /dev/null; then # that was the signal; now wait for the study itself
  status=0
  wait "$study" || status=$?
fi
exit "$status"
