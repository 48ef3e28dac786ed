# Every target sets up what it needs: a fresh clone, Python 3.11 to 3.13 and `make demo` are enough.
# Installing takes half a minute to two minutes and happens once; `touch pyproject.toml` makes the next target repeat it.

# Python 3.12 and later measure the coverage of the tests almost for free; see pyproject.toml.
PYENV_PYTHONS := $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python3.12)
PYTHON ?= $(firstword $(foreach python,python3.12 $(PYENV_PYTHONS) python3.13 python3.11,\
  $(shell $(python) -c 'print("$(python)")' 2>/dev/null)) python3)
PYTEST_ARGS ?=
FUZZ_ARGS ?=
# A variable MODEL in the environment is ignored.
MODEL =
DENSE =
RUNTIME =
KEYSTORE =
KEY_ALIAS =
MAVEN_ARGS ?=

VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on
SOURCES := tfsparsecap export benchmarks tests
# One more than cores, because some tests wait for other processes.
WORKERS := $(shell nproc | awk '{ print $$1 < 4 ? $$1 + 1 : 4 }')
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
APP := android_demo
WEB := web_demo
APK := $(APP)/build/tfsparsecap.apk
APK_WANTED := $(APP)/build/wanted.txt
APK_MADE_WITH := $(APP)/build/made_with.txt
# Folders as well, so that a deleted file counts as a change.
AAR := $(APP)/build/captioner.aar
AAR_SOURCES := $(APP)/build.sh $(wildcard $(APP)/pom.xml $(APP)/*/pom.xml $(APP)/framework/*.java) \
  $(shell find $(APP)/captioner/src 2>/dev/null)
APK_SOURCES := $(AAR_SOURCES) $(wildcard tfsparsecap/captioning/captioners/*.tflite) \
  $(shell find $(APP)/app/src/main $(APP)/models 2>/dev/null)

# Without compiled files, each process takes 9 seconds to import TensorFlow instead of 3.
unexport PYTHONDONTWRITEBYTECODE

# Where the clone came from, as an address for a browser and without a user; empty for folders.
REPOSITORY_URL ?= $(shell git remote get-url origin 2>/dev/null | \
  sed -nE 's!^git@([^:/]+):!https://\1/!; s!^(ssh|https?)://([^@/]*@)?([^/]+/.+)$$!https://\3!; s!\.git$$!!; /^https:/p')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-fast fuzz gpu-check lint types docs format release wheel apk aar test-android web web-demo clean FORCE

help: ## Show this help
	@echo "tfsparsecap: image captioners, pruned during training, exported as sparse .tflite files"
	@echo
	@echo "Start with 'make demo': it installs everything into $(VENV), captions photographs, draws images,"
	@echo "trains on them, and captions new ones with a dense and a 90 % sparse captioner (about five minutes)."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Variables:"
	@echo "  PYTHON=...        the Python to set up with, 3.11 to 3.13   (now: $(PYTHON))"
	@echo "  PYTEST_ARGS=...   more for pytest: make test PYTEST_ARGS='-m \"not slow\" tests/slimming'"
	@echo "  MODEL=... DENSE=...   your own bundles for make apk, DENSE to compare with; MODEL for make web (now: those of the project)"
	@echo "  RUNTIME=...       another runtime for make apk: its .aar, or .aar:.aar of the runtime and of its API"
	@echo "  KEYSTORE=... KEY_ALIAS=...   a release key for make apk; its password is asked for, or in KEYSTORE_PASSWORD"
	@echo "  MAVEN_ARGS=...    more for mvn: -o to work offline, -Dmaven.repo.local=FOLDER"
	@echo
	@echo "Then, in the environment ('. $(VENV)/bin/activate'), each command explains itself with --help:"
	@echo "  python -m tfsparsecap.train | .evaluate | .caption      tfsparsecap-export"

setup: $(READY) ## Install everything into .venv (the other targets do this themselves)

demo: $(READY) ## Caption photographs; draw images, train, prune to 90 %, export and caption them
	$(BIN)/python -m tfsparsecap.demo

# Tests that run files on TFLite 2.16.1 for Android (tests/runtimes) are skipped with a message without these packages:
#   apt-get install --no-install-recommends maven gcc libc6-dev                                      for its x86_64 library
#   apt-get install --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user    for its arm64 library
# Maven fetches the libraries (6 MB) once and keeps them in .cache/. Tests of the app also need what `apk` needs.
# A test that fails is repeated once, because several talk to processes that a busy machine may starve; the summary counts them.
test: $(READY) ## Check style, types and documentation, then run all tests and print the coverage
	@$(MAKE) --no-print-directory --jobs=3 --output-sync lint types docs
	$(PYTEST) --cov --cov-report=term:skip-covered --durations=25 --reruns 1 $(PYTEST_ARGS)

test-fast: lint ## Check the style, then run the fast tests (under three minutes)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

fuzz: $(READY) ## Read 10 000 damaged files of every kind (FUZZ_ARGS='--kind table --seed 7': one of them again)
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

gpu-check: $(READY) ## Check training on a GPU (docs/gpus.md), at most five minutes
	$(BIN)/python -m benchmarks.gpu_check

lint: $(READY) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check the types of the public modules
	$(BIN)/mypy

docs: $(READY) ## Build the documentation site into build/site, with the page if make web built it; warnings are errors
	REPOSITORY_URL="$(REPOSITORY_URL)" NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	@if test -d $(WEB)/build; then cp -r $(WEB)/build build/site/demo; else mkdir build/site/demo; printf '%s\n' \
	  '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Not built</title>' \
	  '<p>This site was built without the page: <a href="../browser/#try-it">how to build it</a>.' \
	  > build/site/demo/index.html; fi

format: $(READY) ## Fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The newest of each version of Python that is found, among them those of pyenv.
RELEASE_PYTHONS = $(foreach version,3.11 3.12 3.13,$(firstword $(foreach python,python$(version) \
  $(wildcard $(HOME)/.pyenv/versions/$(version).*/bin/python$(version)),\
  $(shell $(python) -c 'print("$(python)")' 2>/dev/null))))

release: $(READY) ## Build dist/, check it, and try it in clean environments of each Python found (minutes)
	.ci/release $(RELEASE_PYTHONS)

wheel: $(READY) ## Build dist/tfsparsecap-*.whl
	$(BIN)/python -m build --wheel --no-isolation
	@ls dist/*.whl

# The app needs nothing of .venv, unless bundles are given, which are checked first. Debian's packages for it:
#   apt-get install --no-install-recommends apksigner binutils default-jdk-headless maven unzip xz-utils zip zipalign
# and for its tests aapt and what is named above 'test' as well. android_demo/README.md says more.
apk: $(APK) ## Build the Android app (see android_demo/README.md), with MODEL=my.tflite around your own bundle
	@printf '%s: %s bytes, signed with %s\n' $< "$$(stat -c %s $<)" '$(or $(KEYSTORE),a debug key)'

# Names of files may have spaces, which make would split at.
$(APK) $(APK_WANTED): export APK_MODEL = $(MODEL)
$(APK) $(APK_WANTED): export APK_DENSE = $(DENSE)
$(APK) $(APK_WANTED): export APK_RUNTIME = $(RUNTIME)
$(APK) $(APK_WANTED): export APK_KEYSTORE = $(KEYSTORE)
$(APK) $(APK_WANTED): export APK_KEY_ALIAS = $(KEY_ALIAS)

$(APK): $(APK_SOURCES) $(APK_WANTED) $(if $(MODEL),$(READY))
ifdef MODEL
	@$(BIN)/python -m tfsparsecap_export.android "$$APK_MODEL" $${APK_DENSE:+"$$APK_DENSE"}
else ifdef DENSE
	@echo "DENSE goes beside a MODEL: make apk MODEL=sparse.tflite DENSE=dense.tflite" >&2; exit 2
endif
	@MAVEN_ARGS='$(MAVEN_ARGS)' $(APP)/build.sh apk $@
	@cp $(APK_WANTED) $(APK_MADE_WITH)

# Newer than the app where this call wants other content than the app has, older where it does not.
$(APK_WANTED): FORCE
	@mkdir -p $(@D)
	@IFS=:; for file in "$$APK_MODEL" "$$APK_DENSE" "$$APK_KEYSTORE" $$APK_RUNTIME; do \
	  stat -Lc '%n %s %.Y' -- "$$file" 2>/dev/null || echo "$$file"; done > $@
	@echo "$$APK_KEY_ALIAS" >> $@
	@if cmp -s $@ $(APK_MADE_WITH); then touch -d @0 $@; fi

aar: $(AAR) ## Build the captioner as a library for other apps, and its Javadoc beside it
	@printf '%s: %s bytes, for apps with minSdk 24\n' $< "$$(stat -c %s $<)"

$(AAR): $(AAR_SOURCES)
	@MAVEN_ARGS='$(MAVEN_ARGS)' $(APP)/build.sh aar $@

test-android: ## Run the app's own tests on the JVM, and nothing else
	mvn -B $(MAVEN_ARGS) -f $(APP)/pom.xml test

# Debian's packages for it: apt-get install --no-install-recommends nodejs npm
web: export WEB_MODEL = $(or $(MODEL),tfsparsecap/captioning/captioners/good.tflite)
web: ## Build the page that captions in the browser, with MODEL=my.tflite around your own bundle (see docs/browser.md)
	@$(WEB)/build.sh $(WEB)/build "$$WEB_MODEL"
	@du -sh --apparent-size $(WEB)/build

web-demo: web ## Serve that page at http://127.0.0.1:8000 (PORT=8001: at another port)
	$(PYTHON) -m http.server --bind 127.0.0.1 --directory $(WEB)/build $(or $(PORT),8000)

clean: ## Remove what was built and cached; .venv and runs stay
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache $(APP)/build $(APP)/*/target $(WEB)/build $(WEB)/node_modules
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment without its stamp is incomplete, and pip mistakes half-unpacked packages for installed ones, so
# start over. With an old stamp only the differences are installed. uv takes a fifth of the time of pip.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "tfsparsecap needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is none of them: run 'make $(MAKECMDGOALS) PYTHON=/path/to/python3.11'" >&2; exit 2; }
	@test -e $@ || { echo "Setting up $(VENV): half a minute to two minutes, once"; $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) --quiet -c constraints.txt uv && $(BIN)/uv pip install --python $(BIN)/python -c constraints.txt -e '.[dev]' || \
	  { echo "uv failed (it ignores the settings of pip): installing with pip"; $(PIP) -c constraints.txt -e '.[dev]'; }
	@touch $@
