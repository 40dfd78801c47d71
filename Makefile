# First steps and daily checks; `make` alone lists them.
# This file knows how the project is installed and checked, never how the gateway works.

VENV   = .venv
EXTRAS = dev
ARGS   =
# Other gateways for make bench, each as pip installs it: make bench PEER=rolter
PEER         =
PEER_rolter  = rolter>=0.1,<0.2
PEER_litellm = litellm[proxy]>=1.80,<1.106
# Candidates, best first. One of your own: make demo PYTHON=/path/to/python3.12
PYTHON ?= python3.13 python3.12 python3.11 python3
# With no PATH at all the shell still finds programs, but Python would not know where it is itself.
export PATH ?= /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# Images and shells that forbid bytecode would have every process of every test compile the sources again: 2 s each.
unexport PYTHONDONTWRITEBYTECODE

PYTEST = $(VENV)/bin/python -m pytest
# One more than processors: tests also wait.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

PIP   = $(VENV)/bin/python -m pip --disable-pip-version-check --no-input --quiet
# On all processors; pip would compile on one. What no interpreter can compile, such as templates, is skipped.
COMPILE = { $(VENV)/bin/python -m compileall -qq -j 0 $(VENV)/lib || true; }
TOOLS = $(VENV)/.installed-$(EXTRAS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test check check-full lint types fmt bench bench-check profile modules dist man cli lock sbom clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	  | while IFS='|' read -r target purpose; do printf '  %-12s %s\n' "$$target" "$$purpose"; done

demo: $(VENV)/.installed ## run the gateway on 127.0.0.1:8080 with a simulated model, ready to call
	@exec $(VENV)/bin/gateway serve --demo $(ARGS)

# 5 is pytest's exit code for a part without any tests.
test: $(TOOLS) ## run a sample of the quick tests (all: make test ARGS=tests; a part: ARGS=tests/wire)
	$(PYTEST) -n $(WORKERS) --dist worksteal --quick $(or $(ARGS),--sample) || [ $$? -eq 5 ]

check: $(TOOLS) ## what every change has to pass: lint, types, tests; some 15 minutes on two processors
	$(VENV)/bin/python -m tests.checks

check-full: $(TOOLS) ## every test at full size, and on other versions of Python; an hour
	$(VENV)/bin/python -m tests.checks --full

lint: $(TOOLS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(TOOLS)
	$(VENV)/bin/mypy

fmt: $(TOOLS) ## format the code and mend what ruff can mend
	$(VENV)/bin/ruff check --fix-only --quiet .
	$(VENV)/bin/ruff format .

bench: $(TOOLS) $(PEER:%=var/peers/%/.installed) ## measure the gateway against a bare relay (ARGS=--quick, PEER=rolter)
	$(VENV)/bin/python -m tests.bench $(PEER:%=--peer %) $(ARGS)

bench-check: $(TOOLS) ## fail where the gateway became much slower than tests/bench/ratios.json says
	$(VENV)/bin/python -m tests.bench.check $(ARGS)

profile: $(TOOLS) ## write a flame graph of the gateway under load to var/profile.svg
	$(VENV)/bin/python -m tests.bench.profiling $(ARGS)

modules: $(VENV)/pyvenv.cfg ## list the modules and what each is for (of a package: make modules ARGS=wire)
	@$(VENV)/bin/python scripts/modules $(ARGS)

dist: $(TOOLS) ## build wheel and source distribution in dist/ (PROJECT_URL=https://... names where they are published)
	PROJECT_URL='$(PROJECT_URL)' $(VENV)/bin/python -m build $(ARGS)

man: $(TOOLS) ## write the manual page to dist/gateway.1
	@mkdir -p dist
	$(VENV)/bin/python scripts/reference man > dist/gateway.1

cli: $(TOOLS) ## write docs/cli.md, the reference of the commands, from their help texts
	$(VENV)/bin/python scripts/reference markdown > docs/cli.md

# For every platform; --upgrade takes the newest versions within the bounds that are a week old, --upgrade-package one.
LOCK = var/tools/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --exclude-newer '7 days' --custom-compile-command 'make lock' --quiet
lock: var/tools/.installed ## renew requirements.lock, what containers install (ARGS=--upgrade)
	$(LOCK) $(ARGS) --extra aws --extra azure --extra cluster --extra google --extra images --extra otel --output-file requirements.lock setup.cfg
	$(VENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(LOCK) $(ARGS) --output-file requirements-build.lock -

sbom: var/tools/.installed ## list what the lock installs, with licenses, in dist/model-gateway.cdx.json
	rm -rf var/sbom && $(VENV)/bin/python -m venv --without-pip var/sbom
	$(VENV)/bin/python -m pip --disable-pip-version-check --python var/sbom/bin/python install --quiet --require-hashes -r requirements.lock
	mkdir -p dist
	var/tools/bin/cyclonedx-py environment --output-reproducible --output-file dist/model-gateway.cdx.json var/sbom/bin/python
	$(VENV)/bin/python scripts/licenses dist/model-gateway.cdx.json

# Programs for the two targets above, apart from the project's own environment.
var/tools/.installed: Makefile | $(VENV)/pyvenv.cfg
	$(VENV)/bin/python -m venv var/tools
	var/tools/bin/python -m pip --disable-pip-version-check --no-input --quiet install 'uv>=0.13,<1' 'cyclonedx-bom>=7,<8'
	@touch $@

# The environment of another gateway that make bench compares with.
var/peers/%/.installed:
	@echo "Installing $* into $(@D) ..."
	@$(VENV)/bin/python -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --no-input --quiet install '$(PEER_$*)'
	@touch $@

clean: ## remove the environment and everything built; var/ with its ledger stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: setup.cfg pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing the gateway (about half a minute, only this once) ..."
	@$(PIP) install --no-compile --editable . && $(COMPILE)
	@touch $@

$(VENV)/.installed-$(EXTRAS): setup.cfg pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing the gateway and its tools [$(EXTRAS)] (a minute or two, only this once) ..."
	@$(PIP) install --no-compile --editable '.[$(EXTRAS)]' && $(COMPILE)
	@touch $@ $(VENV)/.installed

# A candidate must run, not merely be on the PATH: version managers leave stubs there that only complain.
$(VENV)/pyvenv.cfg:
	@for python in $(PYTHON); do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  $$python -c 'import ensurepip, venv' 2>/dev/null || { bare=$$python; continue; }; \
	  echo "Making $(VENV) with $$($$python --version) ..."; \
	  exec $$python -m venv $(VENV); \
	done; \
	if [ -n "$$bare" ]; then \
	  echo "$$bare is new enough but has no venv module (Debian, Ubuntu: apt-get install python3-venv)." >&2; \
	else \
	  echo "No Python 3.11 or newer found (tried: $(PYTHON))." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; \
	fi; exit 1
