#!/usr/bin/env bash
# Builds the app without the Android SDK, with zipalign and apksigner from Debian, and Maven.
# `make apk` calls `build.sh apk FILE` and `make aar` calls `build.sh aar FILE`, which run all steps; Maven calls the
# other steps. Variables:
#   APK_MODEL, APK_DENSE            bundles to package instead of the project's; `make apk` checks them
#   APK_RUNTIME                     AARs of another runtime, with a colon between them
#   APK_KEYSTORE, APK_KEY_ALIAS     release key; without one, a debug key is created and reused
#   KEYSTORE_PASSWORD               its password; the script asks for it if the variable is not set
#   MAVEN_ARGS                      additional arguments of mvn, such as -o (offline)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
main=$here/app/src/main
shipped=$here/../tfsparsecap/captioning/captioners
target=$here/app/target
aar=$here/runtime/target/aar
android=$here/framework/target/android.jar
aapt2=$target/aapt2/aapt2
unsigned=$target/apk/unsigned.apk

fail() {
    printf '%s\n' "$@" >&2
    exit 2
}

# Exits with an installation command if commands are missing. $1: purpose; others: command:Debian package.
need() {
    local purpose=$1 missing=() entry
    for entry in "${@:2}"; do
        command -v "${entry%%:*}" >/dev/null || missing+=("$entry")
    done
    if ((${#missing[@]})); then
        fail "$purpose needs ${missing[*]%%:*}. On Debian or Ubuntu:" \
            "  apt-get install --no-install-recommends ${missing[*]#*:}"
    fi
}

# Unpacks the classes of Android's framework to compile against, unless they have not changed. $1: android-all.jar
framework() {
    local classes=$here/framework/target/classes digest
    digest=$(stat -c '%n %s' "$1" && sha256sum <"$here/framework/Framework.java")
    if [[ -f $classes.digest && $digest == "$(<"$classes.digest")" ]]; then return; fi
    rm -rf "$classes"
    mkdir -p "$classes"
    ln -sf "$1" "$android"
    java -XX:TieredStopAtLevel=1 "$here/framework/Framework.java" "$1" "$classes"
    printf '%s\n' "$digest" >"$classes.digest"
}

# Unpacks the classes and native libraries of the runtime, unless they have not changed: those of TFLite's Android
# archives, or of those in APK_RUNTIME.
runtime() {
    local files=("$aar"/*.aar) file digest classes=$here/runtime/target/classes libraries=$here/runtime/target/jni
    if [[ -n ${APK_RUNTIME:-} ]]; then IFS=: read -ra files <<<"$APK_RUNTIME"; fi
    digest=$(sha256sum "${files[@]}")
    if [[ -f $libraries/digest && $digest == "$(<"$libraries/digest")" ]]; then return; fi
    rm -rf "$classes" "$libraries" "$aar/unpacked"
    mkdir -p "$classes"
    for file in "${files[@]}"; do
        unzip -qo "$file" -d "$aar/unpacked"
        unzip -qo "$aar/unpacked/classes.jar" -d "$classes"
    done
    mv "$aar/unpacked/jni" "$libraries"
    rm -r "$aar/unpacked"
    printf '%s\n' "$digest" >"$libraries/digest"
}

# Exits with a message unless the archives of APK_RUNTIME are a runtime with the Java API of TensorFlow Lite.
check_runtime() {
    local files file names classes
    IFS=: read -ra files <<<"$APK_RUNTIME"
    classes=$(mktemp)
    for file in "${files[@]}"; do
        if ! { unzip -p "$file" classes.jar >"$classes" && unzip -Z1 "$classes"; } >/dev/null 2>&1; then
            rm "$classes"
            fail "RUNTIME is $file: not an Android archive with a classes.jar; give the .aar of a TensorFlow Lite runtime"
        fi
        names+=$(unzip -Z1 "$classes" && unzip -Z1 "$file")$'\n'
    done
    rm "$classes"
    for file in Interpreter DataType; do
        if ! grep -qx "org/tensorflow/lite/$file.class" <<<"$names"; then
            fail "RUNTIME has no class org.tensorflow.lite.$file: give the archive of the API too, RUNTIME=this.aar:api.aar"
        fi
    done
    if ! grep -qxE 'jni/(arm64-v8a|armeabi-v7a|x86_64)/.*\.so' <<<"$names"; then
        fail "RUNTIME has no native library: give the .aar of a TensorFlow Lite runtime for Android"
    fi
}

# Prints how each library of a folder is aligned. The least alignment of a LOAD segment counts: Android loads a library
# on pages of that size and smaller. $1: folder with lib/ABI/*.so
alignment() {
    local library least
    while IFS= read -r -d '' library; do
        least=$(LC_ALL=C readelf -lW "$library" | awk '$1 == "LOAD" { print $NF }' | sort -u | while read -r bytes; do
            printf '%d\n' "$bytes"
        done | sort -n | head -n 1)
        printf '%s: LOAD segments aligned to %d KB' "${library#"$1/"}" "$((least / 1024))"
        # 32-bit Android always has pages of 4 KB.
        if ((least >= 16384)) || [[ $library == */armeabi-v7a/* || $library == */x86/* ]]; then
            printf '\n'
        else
            printf '; phones with pages of 16 KB load it only in compatibility mode\n'
        fi
    done < <(find "$1/lib" -name '*.so' -print0 | LC_ALL=C sort -z)
}

# Provides the models as assets: the user's bundles, or those of the package and the dense twin of the first.
models() {
    local new=$target/assets.new
    rm -rf "$new"
    mkdir -p "$new"
    if [[ -n ${APK_MODEL:-} ]]; then
        cp "$APK_MODEL" "$new/sparse.tflite"
        if [[ -n ${APK_DENSE:-} ]]; then cp "$APK_DENSE" "$new/dense.tflite"; fi
    else
        cp "$shipped/good.tflite" "$new/sparse.tflite"
        cp "$shipped/small.tflite" "$new/small.tflite"
        xz -dc "$here/models/dense.tflite.xz" >"$new/dense.tflite"
    fi
    rm -rf "$target/assets"
    mv "$new" "$target/assets"
}

# Builds an APK of resources, manifest and models, without code, and R.java.
resources() {
    local java=$target/generated-sources/aapt2
    if [[ $(uname -sm) != 'Linux x86_64' ]]; then fail "The app is built on Linux for x86_64, not on $(uname -sm)"; fi
    models
    mkdir -p "$target/apk" "$java"
    unzip -qojDD "$target/aapt2/apktool-lib.jar" prebuilt/linux/aapt2_64 -d "$target/aapt2"
    mv "${aapt2}_64" "$aapt2"
    chmod +x "$aapt2"
    "$aapt2" compile --dir "$main/res" -o "$target/apk/compiled.zip"
    "$aapt2" link -o "$target/apk/linked.apk" -I "$android" --manifest "$main/AndroidManifest.xml" --java "$java" \
        -A "$target/assets" -0 .tflite "$target/apk/compiled.zip"
    # The tests map the models from this file, as phones do from the complete APK.
    align "$target/apk/linked.apk" "$target/apk/resources.apk"
}

# Aligns uncompressed files to memory pages of 16 KB.
align() {
    zipalign -f 16384 "$1" "$2"
}

# Builds the TFLite library for the JVM tests, and unpacks classes that Robolectric needs.
test_runtime() {
    local package
    need "Testing the app" gcc:'gcc libc6-dev' python3:python3
    for package in monitor espresso-idling-resource; do
        unzip -qo "$target/test-aars/$package.aar" classes.jar -d "$target/test-aars/$package"
    done
    python3 "$here/../tests/runtimes/jvm_library.py" "$here/runtime/target" "$target/jni"
}

# Compiles the classes to dex code, unless they have not changed. $1: output folder
dex() {
    local java_home digest classes
    java_home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
    mapfile -d '' classes < <(find "$here/runtime/target/classes" "$here/captioner/target/classes" \
        "$target/classes" -name '*.class' -print0 | LC_ALL=C sort -z)
    digest=$(printf '%s\0' "${classes[@]}" "$target"/tools/* | xargs -0 sha256sum | sha256sum)
    if [[ -f $1/digest && $digest == "$(<"$1/digest")" ]]; then return; fi
    rm -rf "$1"
    mkdir -p "$1"
    java -Xmx1g -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$target/tools/r8.jar" com.android.tools.r8.D8 \
        --release --min-api 24 --lib "$java_home" --lib "$android" --output "$1" "${classes[@]}"
    printf '%s\n' "$digest" >"$1/digest"
}

# Combines code, resources, models and native libraries into an aligned APK.
package() {
    local stage=$target/apk/stage abi
    dex "$target/apk/dex"
    rm -rf "$stage"
    mkdir -p "$stage"
    cp "$target"/apk/dex/classes*.dex "$stage"
    for abi in arm64-v8a armeabi-v7a x86_64; do
        if [[ ! -d $here/runtime/target/jni/$abi ]]; then continue; fi
        mkdir -p "$stage/lib/$abi"
        cp "$here/runtime/target/jni/$abi"/*.so "$stage/lib/$abi/"
    done
    alignment "$stage"
    # For reproducible builds: fixed times, no owners, sorted.
    find "$stage" -exec touch -d '1981-01-01 00:00:00 UTC' {} +
    cp "$target/apk/resources.apk" "$unsigned.new"
    (
        cd "$stage"
        export TZ=UTC
        zip -qX "$unsigned.new" classes*.dex
        find lib -type f | LC_ALL=C sort | zip -qX -0 "$unsigned.new" -@
    )
    align "$unsigned.new" "$unsigned"
    rm -rf "$unsigned.new" "$stage"
}

# Signs the aligned APK. $1: output file
sign() {
    local output=$1 key=("$here/.debug.keystore") password=pass:android message
    if [[ -n ${APK_KEYSTORE:-} ]]; then
        if [[ ! -f $APK_KEYSTORE ]]; then fail "KEYSTORE is $APK_KEYSTORE: no such file; give the path of a keystore"; fi
        key=("$APK_KEYSTORE")
        if [[ -n ${APK_KEY_ALIAS:-} ]]; then key+=(--ks-key-alias "$APK_KEY_ALIAS"); fi
        password=env:KEYSTORE_PASSWORD
        if [[ -z ${KEYSTORE_PASSWORD:-} ]]; then
            # Not asked by apksigner, whose output is redirected and which would echo the answer.
            read -rsp "Password of $APK_KEYSTORE: " KEYSTORE_PASSWORD || true
            echo >&2
            export KEYSTORE_PASSWORD
        fi
    elif [[ ! -e ${key[0]} ]]; then
        keytool -genkeypair -keystore "${key[0]}.new" -storetype PKCS12 -storepass android -alias androiddebugkey \
            -keyalg RSA -keysize 2048 -validity 10000 -dname 'CN=Android Debug' 2>/dev/null
        mv "${key[0]}.new" "${key[0]}"
    fi
    mkdir -p "$(dirname "$output")"
    # Android 7 and later verify signatures of the whole file (v2 and later).
    if ! message=$(apksigner sign --ks "${key[@]}" --ks-pass "$password" --min-sdk-version 24 \
        --v1-signing-enabled false --v4-signing-enabled false --out "$output.new" "$unsigned" 2>&1); then
        fail "The app cannot be signed with ${key[0]} (wrong password or alias?):" "${message%%$'\n'*}"
    fi
    apksigner verify --min-sdk-version 24 "$output.new"
    mv "$output.new" "$output"
}

# Packages the captioner as a library, and its documentation beside it. $1: output file
aar() {
    local module=$here/captioner stage=$here/captioner/target/aar docs=$here/captioner/target/javadoc output
    output=$(realpath -m "$1")
    prepare "Building the library" captioner
    rm -rf "$stage" "$docs"
    mkdir -p "$stage" "$(dirname "$output")"
    jar --create --file "$stage/classes.jar" --date=1981-01-01T00:00:00Z -C "$module/target/classes" .
    cp "$module/src/main/AndroidManifest.xml" "$stage"
    : >"$stage/R.txt"
    find "$stage" -exec touch -d '1981-01-01 00:00:00 UTC' {} +
    rm -f "$output.new"
    (cd "$stage" && TZ=UTC zip -qX "$output.new" AndroidManifest.xml R.txt classes.jar)
    javadoc -quiet -Xdoclint:all,-missing -Werror -notimestamp -public --release 8 -d "$docs" \
        -classpath "$here/framework/target/classes:$here/runtime/target/classes" \
        -sourcepath "$module/src/main/java" org.tfsparsecap.captioner
    jar --create --file "${output%.aar}-javadoc.jar" --date=1981-01-01T00:00:00Z -C "$docs" .
    mv "$output.new" "$output"
}

# Runs the steps of Maven. $1: purpose; $2: module, with those that it needs
prepare() {
    local name
    need "$1" zipalign:zipalign apksigner:apksigner javac:default-jdk-headless mvn:maven readelf:binutils \
        zip:zip unzip:unzip xz:xz-utils
    # Maven runs the steps in a different folder.
    for name in APK_MODEL APK_DENSE APK_KEYSTORE; do
        if [[ -n ${!name:-} ]]; then export "$name=$(realpath -m "${!name}")"; fi
    done
    if [[ -n ${APK_RUNTIME:-} ]]; then
        APK_RUNTIME=$(tr : '\n' <<<"$APK_RUNTIME" | xargs -d '\n' realpath -m | paste -sd:)
        export APK_RUNTIME
        check_runtime
    fi
    printf '%s; with an empty Maven repository, 260 MB are downloaded first\n' "$1"
    # shellcheck disable=SC2086  # may contain several arguments
    mvn -B -q ${MAVEN_ARGS:-} -f "$here/pom.xml" -Dapk prepare-package -pl "$2" -am
}

# Runs all steps. $1: output file
apk() {
    prepare "Building the app" app
    sign "$1"
}

case ${1:-} in
    framework | runtime | models | resources | package | sign | apk | aar) "$@" ;;
    test-runtime) test_runtime ;;
    *) fail "usage: build.sh apk FILE or build.sh aar FILE (Maven runs the other steps)" ;;
esac
