"""The tests under each Python that is installed: `make test-all`. A Python that is missing is skipped."""

import nox

nox.needs_version = ">=2025.5"


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Install the package and the test group, and run the tests."""
    session.install("--editable", ".", *nox.project.dependency_groups(nox.project.load_toml(), "test"))
    session.run("pytest", "--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder", *session.posargs)
