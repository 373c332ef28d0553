#!/usr/bin/env bash
# The first half hour on a GPU: tests and measurements in stages, the most telling first, each with a limit of time. A stage
# that fails does not stop those after it.
#
#   benches/cuda/first_light.sh pack FOLDER                  where Rust is: builds, strips and packs the binaries
#   benches/cuda/first_light.sh run FOLDER RESULTS [STAGE..] where the GPU is, in a checkout of the same commit
#
# Stages: gpu kernels models accuracy speed products sanitizer; all of them without a name. RESULTS gets a text file for each,
# and summary.txt. SPEED names the models of the stage speed. NVRTC is looked for as docs/cuda.md says, then next to the toolkit
# and among Python's packages.
set -uo pipefail
cd "$(dirname "$0")/../.."

usage() {
    sed -n '5,6s/^# *//p' "$0" >&2
    exit 2
}

# The executables that cargo says it made, as `name path`.
made() {
    python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"] | ("bench" in message["target"]["kind"]):
        kind = message["target"]["kind"][0]
        print({"lib": "lib", "bench": "bench"}.get(kind, message["target"]["name"]), message["executable"])'
}

pack() {
    local folder=$1 staged
    set -e
    mkdir -p "$folder"
    staged=$(mktemp -d)
    {
        cargo test --release -p model-factory-tests --test cuda --test accuracy --no-run --message-format=json
        cargo test --release -p model-factory-cuda --lib --no-run --message-format=json
        cargo bench --features cuda --bench cuda --no-run --message-format=json
    } | made | while read -r name path; do
        strip -o "$staged/$name" "$path"
    done
    # Tests look for their fixtures where they were built.
    pwd >"$staged/checkout"
    tar -C "$staged" -cJf "$folder/binaries.tar.xz" .
    rm -r "$staged"
    ls -l "$folder/binaries.tar.xz"
}

find_nvrtc() {
    [ -z "${MODEL_FACTORY_NVRTC:-}" ] || return 0
    ! ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so\.1[23]' || return 0
    local packages library
    packages=$(python3 -c 'import site; print(*site.getsitepackages())' 2>/dev/null)
    for library in /usr/local/cuda*/lib64/libnvrtc.so.1[23] \
        $(for package in $packages; do echo "$package"/nvidia/*/lib/libnvrtc.so.1[23]; done); do
        if [ -e "$library" ]; then
            export MODEL_FACTORY_NVRTC=$library
            return 0
        fi
    done
}

# `stage NAME FILE SECONDS COMMAND..`: what the command prints goes to the file, how it ended to the summary.
stage() {
    local name=$1 file=$results/$2.txt limit=$3 start=$SECONDS code=0
    shift 3
    printf '== %s: %s\n' "$name" "$*" >>"$file"
    timeout -k 10 "$limit" "$@" >>"$file" 2>&1 || code=$?
    printf '%-28s %4d s of %4d, exit %d\n' "$name" "$((SECONDS - start))" "$limit" "$code" | tee -a "$results/summary.txt"
}

run() {
    local folder=$1 checkout wanted
    results=$2
    shift 2
    wanted=${*:-gpu kernels models accuracy speed products sanitizer}
    mkdir -p "$results"
    binaries=$(mktemp -d)
    models=$(mktemp -d)
    trap 'rm -rf "$binaries" "$models"' EXIT
    tar -C "$binaries" -xJf "$folder/binaries.tar.xz" 2>/dev/null ||
        python3 -m tarfile -e "$folder/binaries.tar.xz" "$binaries" || exit 1
    checkout=$(cat "$binaries/checkout")
    [ -e "$checkout/Cargo.toml" ] || { mkdir -p "$(dirname "$checkout")" && ln -sfn "$PWD" "$checkout"; } || exit 1
    find_nvrtc
    export TEST_DEVICE=cuda RUST_BACKTRACE=1
    local test=(--nocapture --test-threads 1) name
    for name in $wanted; do
        case $name in
        gpu)
            stage nvidia-smi gpu 20 nvidia-smi
            stage nvrtc gpu 5 echo "${MODEL_FACTORY_NVRTC:-by its name}"
            stage facts gpu 120 "$binaries/bench" facts
            ;;
        kernels)
            stage products kernels 120 env GENERATIONS=all "$binaries/lib" tests::products "${test[@]}"
            stage steps kernels 60 "$binaries/lib" tests::steps "${test[@]}"
            stage measures kernels 60 "$binaries/lib" tests::peak "${test[@]}"
            stage engine kernels 120 "$binaries/lib" tests::{attention,overflow,plan::,recordings,upload} "${test[@]}"
            ;;
        models)
            stage models models 180 "$binaries/lib" tests::models "${test[@]}"
            stage generation models 120 "$binaries/cuda" "${test[@]}"
            ;;
        accuracy)
            stage accuracy accuracy 180 "$binaries/accuracy" accuracy:: "${test[@]}"
            stage int8 accuracy 90 "$binaries/accuracy" int8:: "${test[@]}"
            ;;
        speed)
            for model in ${SPEED:-BF16 Q4_K_M Q8_0 W8A8}; do
                stage "speed of $model" speed 150 "$binaries/bench" "$models" "$model"
            done
            ;;
        products)
            stage products products 120 "$binaries/bench" products
            ;;
        sanitizer)
            command -v compute-sanitizer >/dev/null || { echo 'no compute-sanitizer' >>"$results/summary.txt" && continue; }
            for tool in memcheck racecheck synccheck; do
                stage "$tool of int8 products" sanitizer 120 compute-sanitizer --tool "$tool" --error-exitcode 9 \
                    "$binaries/lib" tests::products::int8 "${test[@]}"
                stage "$tool of a model" sanitizer 120 compute-sanitizer --tool "$tool" --error-exitcode 9 \
                    "$binaries/cuda" the_bundled_model_tells_its_story "${test[@]}"
            done
            ;;
        *) usage ;;
        esac
    done
}

case ${1:-} in
pack) [ $# -eq 2 ] || usage && pack "$2" ;;
run) [ $# -ge 3 ] || usage && run "${@:2}" ;;
*) usage ;;
esac
