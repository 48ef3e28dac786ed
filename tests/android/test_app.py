"""The app's own tests, the content of the APK, and `make apk`."""

import io
import os
import re
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ..runtimes import tflite_2_16
from .conftest import REPOSITORY, app_models

pytestmark = pytest.mark.slow

ABIS = ("arm64-v8a", "armeabi-v7a", "x86_64")
LIBRARY = "libtensorflowlite_jni.so"
PAGE = 16384


def output(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def data_offset(file: Path, entry: zipfile.ZipInfo) -> int:
    """Position of an entry's data in a zip archive: after its local header, which has lengths of its own."""
    with file.open("rb") as archive:
        archive.seek(entry.header_offset)
        header = archive.read(30)
    name, extra = struct.unpack_from("<HH", header, 26)
    return entry.header_offset + len(header) + name + extra


def newest_java() -> dict[str, str]:
    """The environment that selects the newest JDK: the tests run on Android 16 with JDK 21 and later."""
    homes = [
        (int(version.group(1)), str(release.parent))
        for release in Path("/usr/lib/jvm").glob("*/release")
        if (version := re.search(r'^JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8"), re.M))
        and (release.parent / "bin" / "javac").exists()
    ]
    return {"JAVA_HOME": max(homes)[1]} if homes else {}


def entries(apk: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(apk) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def assets(apk: Path) -> dict[str, bytes]:
    prefix = "assets/"
    return {name[len(prefix) :]: data for name, data in entries(apk).items() if name.startswith(prefix)}


# --- the Java tests


def test_java_tests_pass(checkout, record_property):
    command = ("mvn", "-B", "-f", "android_demo/pom.xml", "test")
    # Some tests caption photographs in a folder beside the repository, not beside its copy.
    shared = os.environ.get("TFSPARSECAP_SHARED", str(REPOSITORY.parent / "shared"))
    result = checkout.run(*command, TFSPARSECAP_SHARED=shared, **newest_java())
    folder = checkout.path / "android_demo" / "app"
    cases = [
        case
        for report in sorted((folder / "target" / "surefire-reports").glob("TEST-*.xml"))
        for case in ElementTree.parse(report).getroot().iter("testcase")
    ]
    failed = [
        f"{case.get('classname')}.{case.get('name')}: {problem.get('message')}"
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error")
    ]
    skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
    (sdk,) = re.findall(
        r"sdk=(\d+)", (folder / "target/test-classes/robolectric.properties").read_text(encoding="utf-8")
    )
    counts = f"{len(cases)} run on API {sdk}, {len(failed)} failed, {len(skipped)} skipped {skipped or ''}"
    record_property("message", f"Java tests of the app: {counts}")
    assert not failed, "\n".join(failed)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    sources = (folder / "src" / "test" / "java").rglob("*Test.java")
    written = {file.stem for file in sources if "abstract class" not in file.read_text(encoding="utf-8")}
    assert written and written == {case.get("classname").rpartition(".")[2] for case in cases}


# --- the APK


def test_signature_is_valid_on_all_supported_android_versions(apk):
    verification = output("apksigner", "verify", "--verbose", "--min-sdk-version", "24", apk)
    for scheme in ("v2", "v3"):
        assert re.search(rf"^Verified using {scheme} scheme .*: true$", verification, re.M)


def test_apk_declares_package_versions_and_activity(apk):
    badging = output("aapt2", "dump", "badging", apk)
    (package,) = re.findall(r"^package: (.*)", badging, re.M)
    assert "name='org.tfsparsecap.demo'" in package
    assert re.search(r"versionCode='[1-9]\d*' versionName='\d+(\.\d+)+'", package)
    assert re.findall(r"^(?:sdkVersion|targetSdkVersion):'(\d+)'", badging, re.M) == ["24", "36"]
    (abis,) = re.findall(r"^native-code: (.*)", badging, re.M)
    assert re.findall(r"'([^']+)'", abis) == list(ABIS)
    (label,) = re.findall(r"^application-label:'([^']+)'", badging, re.M)
    assert label == ElementTree.parse(
        REPOSITORY / "android_demo/app/src/main/res/values/strings.xml"
    ).findtext("string[@name='app_name']")
    assert re.findall(r"^launchable-activity: name='([^']+)'", badging, re.M) == [
        "org.tfsparsecap.demo.MainActivity"
    ]
    # The app can be installed on phones without a camera.
    assert not re.findall(r"uses-feature: .*", badging)
    assert re.findall(r"^uses-permission: name='([^']+)'", badging, re.M) == ["android.permission.CAMERA"]


def test_manifest_keeps_elements_of_newer_androids(apk):
    manifest = output("aapt2", "dump", "xmltree", "--file", "AndroidManifest.xml", apk)
    (queries,) = re.findall(r"^ *E: queries .*\n((?:.*\n)*?) *E: application", manifest, re.M)
    asked = re.findall(r'name\(0x01010003\)="([^"]+)"', queries)
    assert asked == ["android.intent.action.TTS_SERVICE", "android.media.action.IMAGE_CAPTURE"]
    # The ids and the value of "enabled" are those of Android 16's public.xml and attrs_manifest.xml.
    for attribute in (
        "extractNativeLibs(0x010104ea)=false",
        "enableOnBackInvokedCallback(0x0101066c)=true",
        "pageSizeCompat(0x010106ab)=32",
    ):
        assert attribute in manifest


def test_models_and_libraries_are_uncompressed_and_page_aligned(apk):
    with zipfile.ZipFile(apk) as archive:
        stored = [info for info in archive.infolist() if info.filename.startswith(("assets/", "lib/"))]
    assert len(stored) == 3 + len(ABIS)
    for info in stored:
        assert info.compress_type == zipfile.ZIP_STORED, info.filename
        assert data_offset(apk, info) % PAGE == 0, info.filename
    output("zipalign", "-c", str(PAGE), apk)
    # Newer versions check the pages of libraries apart from other files.
    if "-P" in subprocess.run(["zipalign"], capture_output=True, text=True, check=False).stderr:
        output("zipalign", "-c", "-P", "16", "4", apk)


def test_libraries_are_aligned_as_the_readme_says(apk, tmp_path):
    """On the 4 KB of TensorFlow Lite 2.16.1; with 16 KB, the README and the manifest should say so."""
    with zipfile.ZipFile(apk) as archive:
        libraries = [archive.extract(f"lib/{abi}/{LIBRARY}", tmp_path) for abi in ABIS]
    for library in libraries:
        segments = re.findall(r"^ *LOAD .* (0x[0-9a-f]+)$", output("readelf", "-lW", library), re.M)
        assert segments and set(segments) == {"0x1000"}, library


def test_apk_contains_the_models_of_the_repository(apk):
    assert assets(apk) == app_models()


def test_apk_contains_tflites_native_libraries(apk):
    with zipfile.ZipFile(io.BytesIO(tflite_2_16.android_package())) as package:
        expected = {f"lib/{abi}/{LIBRARY}": package.read(f"jni/{abi}/{LIBRARY}") for abi in ABIS}
    content = entries(apk)
    assert {name: data for name, data in content.items() if name.startswith("lib/")} == expected


def test_code_contains_the_interpreter_and_all_classes_in_the_manifest(apk):
    (code,) = [data for name, data in entries(apk).items() if name.endswith(".dex")]
    assert code.startswith(b"dex\n")
    manifest = ElementTree.parse(REPOSITORY / "android_demo/app/src/main/AndroidManifest.xml").getroot()
    name = "{http://schemas.android.com/apk/res/android}name"
    parts = manifest.iter()
    named = {
        part.get(name) for part in parts if part.tag in ("application", "activity", "provider", "service")
    }
    classes = {f"org.tfsparsecap.demo{part}" if part.startswith(".") else part for part in named - {None}}
    assert "org.tfsparsecap.demo.MainActivity" in classes
    classes |= {"org.tfsparsecap.captioner.Captioner", "org.tensorflow.lite.Interpreter"}
    assert not [name for name in classes if f"L{name.replace('.', '/')};".encode() not in code]
    # No test dependencies.
    assert not re.search(rb"org/junit|robolectric", code)


# --- make apk and make aar


def test_second_make_only_prints_the_path(checkout, apk):
    before = checkout.apk.stat()
    printed = checkout.build().stdout
    assert checkout.apk.stat().st_mtime_ns == before.st_mtime_ns
    assert printed == f"android_demo/build/tfsparsecap.apk: {before.st_size} bytes, signed with a debug key\n"


def test_dense_bundle_without_model_is_an_error(checkout, apk):
    result = checkout.run("make", "apk", "DENSE=some.tflite")
    assert result.returncode == 2
    assert "DENSE goes beside a MODEL" in result.stderr


def test_own_model_replaces_the_default_models(checkout, apk, tmp_path):
    before = entries(apk)
    mine = tmp_path / "my model.tflite"
    mine.write_bytes(assets(apk)["sparse.tflite"])
    checkout.build(f"MODEL={mine}")
    assert assets(checkout.apk) == {"sparse.tflite": mine.read_bytes()}
    output("apksigner", "verify", checkout.apk)
    del before["assets/small.tflite"], before["assets/dense.tflite"]
    assert entries(checkout.apk) == before
    # A changed or deleted model is noticed; the error is one line, and the previous APK stays.
    built = checkout.apk.read_bytes()
    mine.write_bytes(b"Dear all")
    result = checkout.run("make", "apk", f"MODEL={mine}")
    assert result.returncode == 2
    message, end = result.stderr.strip().splitlines()
    assert mine.name in message and "not a .tflite file" in message
    assert end.startswith("make: ***")
    assert "Building" not in result.stdout
    mine.unlink()
    (checkout.path / ".venv/bin/python").write_text("#!/bin/sh\necho checked >&2; exit 2\n", encoding="utf-8")
    result = checkout.run("make", "apk", f"MODEL={mine}")
    assert result.returncode == 2 and "checked" in result.stderr
    assert checkout.apk.read_bytes() == built


def test_release_key_signs_the_apk_and_a_wrong_password_is_an_error(checkout, apk, tmp_path):
    keys, signed = tmp_path / "release.keystore", tmp_path / "signed.apk"
    output(
        "keytool", "-genkeypair", "-keystore", keys, "-storetype", "PKCS12", "-storepass", "correct horse",
        "-alias", "release", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=A release",
    )  # fmt: skip
    sign = ("android_demo/build.sh", "sign", str(signed))
    signing_key = {"APK_KEYSTORE": str(keys), "APK_KEY_ALIAS": "release"}
    result = checkout.run(*sign, **signing_key, KEYSTORE_PASSWORD="correct horse")
    assert result.returncode == 0, result.stderr
    assert "CN=A release" in output("apksigner", "verify", "--print-certs", signed)
    signed.unlink()
    for wrong in ({"KEYSTORE_PASSWORD": "battery"}, {"APK_KEYSTORE": str(tmp_path / "absent")}):
        result = checkout.run(*sign, **{**signing_key, "KEYSTORE_PASSWORD": "correct horse", **wrong})
        assert result.returncode == 2
        assert "Exception" not in result.stderr
        assert not signed.exists()


def test_build_names_missing_tools(tmp_path):
    for tool in ("bash", "dirname", "zipalign", "javac", "mvn", "zip", "unzip", "xz"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/bin/true")
    result = subprocess.run(
        ["bash", REPOSITORY / "android_demo" / "build.sh", "apk", tmp_path / "never.apk"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "Building the app needs apksigner readelf. On Debian or Ubuntu:",
        "  apt-get install --no-install-recommends apksigner binutils",
    ]


def small_runtime(folder: Path) -> Path:
    """TFLite's classes with libraries of one function each, aligned to 4, 16 and 64 KB."""
    (folder / "jni").mkdir()
    (folder / "one.c").write_text("int one(void) { return 1; }\n", encoding="utf-8")
    with zipfile.ZipFile(folder / "my runtime.aar", "w") as archive:
        with zipfile.ZipFile(io.BytesIO(tflite_2_16.android_package())) as package:
            archive.writestr("classes.jar", package.read("classes.jar"))
        for name, bytes_ in (("a4", 4096), ("b16", 16384), ("c64", 65536)):
            library = folder / f"lib{name}.so"
            pages = f"-Wl,-z,max-page-size={bytes_}"
            output("gcc", "-shared", "-nostdlib", pages, "-o", library, folder / "one.c")
            archive.write(library, f"jni/x86_64/{library.name}")
    return folder / "my runtime.aar"


def test_another_runtime_is_packaged_and_its_alignment_printed(checkout, apk, tmp_path):
    before = entries(apk)
    api = next((checkout.path / "android_demo/runtime/target/aar").glob("*-api.aar"))
    printed = checkout.build(f"RUNTIME={small_runtime(tmp_path)}:{api}").stdout
    lines = re.findall(r"lib/(\S+): LOAD segments aligned to (\d+) KB(.*)", printed)
    compatibility = "; phones with pages of 16 KB load it only in compatibility mode"
    assert lines == [
        ("x86_64/liba4.so", "4", compatibility),
        ("x86_64/libb16.so", "16", ""),
        ("x86_64/libc64.so", "64", ""),
    ]
    changed = {name: content for name, content in entries(checkout.apk).items() if name.startswith("lib/")}
    assert changed == {
        f"lib/x86_64/lib{name}.so": (tmp_path / f"lib{name}.so").read_bytes() for name in ("a4", "b16", "c64")
    }
    assert {name for name in before if not name.startswith("lib/")} <= entries(checkout.apk).keys()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("absent.aar", "not an Android archive with a classes.jar"),
        ("damaged.aar", "not an Android archive with a classes.jar"),
        ("api.aar", "RUNTIME has no class org.tensorflow.lite.Interpreter"),
        ("runtime.aar", "RUNTIME has no class org.tensorflow.lite.DataType"),
        ("classes.aar:api.aar", "RUNTIME has no native library"),
    ],
)
def test_wrong_runtime_is_one_sentence(files, message, checkout, apk, tmp_path):
    package = tflite_2_16.android_package()
    (tmp_path / "runtime.aar").write_bytes(package)
    folder = checkout.path / "android_demo/runtime/target/aar"
    shutil.copy(next(folder.glob("*-api.aar")), tmp_path / "api.aar")
    with (
        zipfile.ZipFile(io.BytesIO(package)) as package_archive,
        zipfile.ZipFile(tmp_path / "classes.aar", "w") as archive,
    ):
        archive.writestr("classes.jar", package_archive.read("classes.jar"))
    with zipfile.ZipFile(tmp_path / "damaged.aar", "w") as archive:
        archive.writestr("classes.jar", b"Dear all")
    runtime = ":".join(str(tmp_path / file) for file in files.split(":"))
    result = checkout.run("android_demo/build.sh", "apk", str(tmp_path / "never.apk"), APK_RUNTIME=runtime)
    assert result.returncode == 2
    assert message in result.stderr and len(result.stderr.splitlines()) == 1
    assert "Building" not in result.stdout


def test_library_contains_the_captioner_and_its_documentation(checkout, apk):
    checkout.build(target="aar")
    folder = checkout.path / "android_demo/build"
    with zipfile.ZipFile(folder / "captioner.aar") as archive:
        assert {"AndroidManifest.xml", "R.txt", "classes.jar"} == set(archive.namelist())
        with zipfile.ZipFile(io.BytesIO(archive.read("classes.jar"))) as classes:
            names = {name for name in classes.namelist() if name.endswith(".class")}
    package = "org/tfsparsecap/captioner/"
    assert {f"{package}Captioner.class", f"{package}AsyncCaptioner.class"} <= names
    assert all(name.startswith(package) for name in names)
    with zipfile.ZipFile(folder / "captioner-javadoc.jar") as docs:
        page = docs.read(f"{package}AsyncCaptioner.html").decode()
    assert "CompletableFuture" in page
