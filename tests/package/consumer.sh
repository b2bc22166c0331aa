#!/usr/bin/env bash
# Installs the build into a throw-away prefix, builds examples/consumer against it with find_package, runs it; then makes
# the relocatable bundle and runs it from another folder. Usage: consumer.sh SOURCE_DIR BINARY_DIR
set -euo pipefail
source_dir=$1 binary_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$binary_dir" --prefix "$work/prefix" >/dev/null
cmake -S "$source_dir/examples/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer"
(cd "$work" && cpack -G TGZ --config "$binary_dir/CPackConfig.cmake" -B "$work/cpack" >/dev/null)
mkdir "$work/elsewhere"
tar -xzf "$work"/cpack/*.tar.gz -C "$work/elsewhere" --strip-components=1
"$work/elsewhere/bin/attnscope" --version
