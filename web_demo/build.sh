#!/usr/bin/env bash
# Writes the page as a folder of static files: build.sh FOLDER CAPTIONER.tflite
set -euo pipefail
if [[ $# -ne 2 ]]; then
    echo "usage: build.sh FOLDER CAPTIONER.tflite" >&2
    exit 2
fi
captioner=$(realpath -- "$2")
folder=$(realpath -m -- "$1")
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ ! -f $captioner ]]; then
    echo "there is no file $captioner: give a .tflite file that tfsparsecap-export wrote" >&2
    exit 2
fi
if [[ $(head -c 8 -- "$captioner" | tail -c 4) != TFL3 ]]; then
    echo "$captioner is not a .tflite file: give one that tfsparsecap-export wrote" >&2
    exit 2
fi
if ! command -v npm >/dev/null; then
    echo "building the page needs npm: apt-get install --no-install-recommends nodejs npm" >&2
    exit 2
fi

# Installs exactly what package-lock.json names, once.
if [[ ! node_modules/.package-lock.json -nt package-lock.json ]]; then
    npm ci --no-audit --no-fund --loglevel=error
    touch node_modules/.package-lock.json
fi

runtime=node_modules/@litertjs
new="$folder.new"
rm -rf "$new"
mkdir -p "$new/litert"
cp index.html ./*.{css,js,svg} "$new"
cp ../LICENSE "$new/LICENSE.txt"
cp -- "$captioner" "$new/captioner.tflite"
# The build for all browsers with SIMD: it gives the same captions on each of them.
cp $runtime/core/wasm/litert_wasm_compat_internal.{js,wasm} "$new/litert"
cp $runtime/wasm-utils/dist/index.js "$new/litert/wasm-utils.js"
# Workers have no import maps, so the import gets the address of the file.
sed 's#"@litertjs/wasm-utils"#"./wasm-utils.js"#; /^\/\/# sourceMappingURL=/d' \
    $runtime/core/dist/index.js >"$new/litert/index.js"
sed -i '/^\/\/# sourceMappingURL=/d' "$new/litert/wasm-utils.js"
if ! grep -q '"./wasm-utils.js"' "$new/litert/index.js"; then
    echo "this version of @litertjs/core does not import @litertjs/wasm-utils: change build.sh" >&2
    exit 1
fi

# The service worker keeps these files; its name for them changes with their content.
cd "$new"
chmod -R u=rwX,go=rX .
files=$(find . -type f ! -name service-worker.js -printf '%P\n' | LC_ALL=C sort)
version=$(xargs -d '\n' sha256sum <<<"$files" | cat - service-worker.js | sha256sum | cut -c -16)
list=$(printf '"%s",' $files)
sed -i -e "s#^const VERSION = .*#const VERSION = \"$version\";#" \
    -e "s#^const FILES = .*#const FILES = [\"./\",${list%,}];#" service-worker.js
cd - >/dev/null
rm -rf "$folder"
mv "$new" "$folder"
