#!/usr/bin/env bash
# Builds the app without the Android SDK: Debian's aapt2, zipalign and apksigner, and what Maven fetches.
# `build.sh apk FILE` does everything (`make apk` calls it); Maven calls the other steps, one each. Variables:
#   APK_MODEL, APK_DENSE            bundles that go into the app instead of the ones in models/; checked before
#   APK_KEYSTORE, APK_KEY_ALIAS     a release key; without one a debug key is made once and used
#   KEYSTORE_PASSWORD               its password, asked for where it is not set
#   MAVEN_ARGS                      more for mvn, such as -o (no network)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
main=$here/app/src/main
target=$here/app/target
aar=$here/runtime/target/aar
unsigned=$target/apk/unsigned.apk

fail() {
    printf '%s\n' "$@" >&2
    exit 2
}

# Ends with what to install where commands are missing. $1: for what; the others: command:Debian's package.
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

# The classes of TFLite's Android packages, and their native libraries beside them.
runtime() {
    local package
    mkdir -p "$here/runtime/target/classes"
    rm -f "$here"/runtime/target/runtime-*.jar
    for package in tensorflow-lite tensorflow-lite-api; do
        unzip -qo "$aar/$package.aar" -d "$aar/$package"
        unzip -qo "$aar/$package/classes.jar" -d "$here/runtime/target/classes"
    done
}

# The models as assets: the user's, else the ones in models/.
models() {
    local new=$target/assets.new
    rm -rf "$new"
    mkdir -p "$new"
    if [[ -n ${APK_MODEL:-} ]]; then
        cp "$APK_MODEL" "$new/sparse.tflite"
        if [[ -n ${APK_DENSE:-} ]]; then cp "$APK_DENSE" "$new/dense.tflite"; fi
    else
        tar -xJf "$here/models/models.tar.xz" -C "$new"
    fi
    rm -rf "$target/assets"
    mv "$new" "$target/assets"
}

# Resources, manifest and models as an APK without code, and R.java. $1: android.jar
resources() {
    local java=$target/generated-sources/aapt2
    models
    mkdir -p "$target/apk" "$java"
    aapt2 compile --dir "$main/res" -o "$target/apk/compiled.zip"
    # Debian's aapt2 is older than <queries> in a manifest, and than a chunk in android.jar that it does not need:
    # it keeps the one, skips the other, and warns of both.
    aapt2 link -o "$target/apk/linked.apk" -I "$1" --manifest "$main/AndroidManifest.xml" --java "$java" \
        --min-sdk-version 24 --target-sdk-version 34 -A "$target/assets" -0 .tflite "$target/apk/compiled.zip" \
        --warn-manifest-validation 2> >(grep -v -e 'Unknown chunk type' -e 'unexpected element <queries>' >&2 || true)
    # For tests, which map the models from it as phones do from the whole APK.
    align "$target/apk/linked.apk" "$target/apk/resources.apk"
}

# Everything that is not compressed begins on a memory page, on phones with pages of 16 KB, too.
align() {
    zipalign -f 16384 "$1" "$2"
}

# What tests on the JVM run TFLite with, and classes that Robolectric needs.
test_runtime() {
    local package
    need "Testing the app" gcc:'gcc libc6-dev' python3:python3
    for package in monitor espresso-idling-resource; do
        unzip -qo "$target/test-aars/$package.aar" classes.jar -d "$target/test-aars/$package"
    done
    python3 "$here/../tests/runtimes/jvm_library.py" "$aar/tensorflow-lite" "$target/jni"
}

# Code, resources, models and native libraries as one aligned APK. $1: android.jar
package() {
    local stage=$target/apk/stage java_home abi
    java_home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
    rm -rf "$stage"
    mkdir -p "$stage"
    find "$target/classes" -name '*.class' -print0 | LC_ALL=C sort -z | xargs -0 \
        java -Xmx1g -cp "$target/tools/r8.jar" com.android.tools.r8.D8 --release --min-api 24 \
        --lib "$java_home" --lib "$1" --output "$stage" "$here"/runtime/target/runtime-*.jar
    for abi in arm64-v8a armeabi-v7a x86_64; do
        mkdir -p "$stage/lib/$abi"
        cp "$aar/tensorflow-lite/jni/$abi/libtensorflowlite_jni.so" "$stage/lib/$abi/"
    done
    # The same input gives the same file: no times, no owners, one order.
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

# The aligned APK with a signature. $1: where it goes.
sign() {
    local output=$1 key=("$here/.debug.keystore") password=pass:android said
    if [[ -n ${APK_KEYSTORE:-} ]]; then
        if [[ ! -f $APK_KEYSTORE ]]; then fail "KEYSTORE is $APK_KEYSTORE: no such file; give a key store"; fi
        key=("$APK_KEYSTORE")
        if [[ -n ${APK_KEY_ALIAS:-} ]]; then key+=(--ks-key-alias "$APK_KEY_ALIAS"); fi
        password=env:KEYSTORE_PASSWORD
        if [[ -z ${KEYSTORE_PASSWORD:-} ]]; then
            # Not by apksigner, whose question would go where its output goes, and the answer be seen.
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
    # Since Android 7, minSdk, phones look at signatures of the whole file (v2 and later).
    if ! said=$(apksigner sign --ks "${key[@]}" --ks-pass "$password" --min-sdk-version 24 \
        --v1-signing-enabled false --v4-signing-enabled false --out "$output.new" "$unsigned" 2>&1); then
        fail "The app is not signed, ${key[0]} gave no key (wrong password or alias?):" "${said%%$'\n'*}"
    fi
    apksigner verify --min-sdk-version 24 "$output.new"
    mv "$output.new" "$output"
}

# $1: where the APK goes.
apk() {
    local name
    need "Building the app" aapt2:aapt zipalign:zipalign apksigner:apksigner javac:default-jdk-headless mvn:maven \
        zip:zip unzip:unzip xz:xz-utils
    # Maven runs the steps in another folder.
    for name in APK_MODEL APK_DENSE APK_KEYSTORE; do
        if [[ -n ${!name:-} ]]; then export "$name=$(realpath -m "${!name}")"; fi
    done
    printf 'Building the app; with an empty Maven repository 200 MB are fetched first\n'
    # shellcheck disable=SC2086  # several arguments
    mvn -B -q ${MAVEN_ARGS:-} -f "$here/pom.xml" -Dapk package
    sign "$1"
}

case ${1:-} in
    runtime | models | resources | package | sign | apk) "$@" ;;
    test-runtime) test_runtime ;;
    *) fail "usage: build.sh apk FILE (the other steps are Maven's)" ;;
esac
