"""English updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.updates_words import Domain

__all__ = ["DOMAINS"]

DOMAINS: Final[Mapping[str, Domain]] = {
    "port": Domain(
        things=(
            ("the billing API", "8080", "9090"),
            ("the staging gateway", "7001", "7443"),
            ("Grafana", "3000", "3300"),
            ("our metrics exporter", "9100", "9200"),
            ("the websocket server", "6001", "6443"),
        ),
        before=(
            "{S} listens on port {a}.",
            "The port of {s} is {a}.",
            "Remember that {s} runs on port {a}.",
            "For the record, {s} uses port {a}.",
        ),
        after=(
            "{S} now listens on port {b}.",
            "We moved {s} from port {a} to port {b}.",
            "I changed the port of {s} to {b}.",
            "Correction: {s} runs on port {b}, not {a}.",
            "As of today {s} is on port {b}.",
            "The port of {s} is {b} now (it was {a} before).",
            "Set the port of {s} to {b}.",
        ),
        question="Which port does {s} use?",
    ),
    "path": Domain(
        things=(
            ("the nightly backups", "/var/backups/nightly", "/srv/backups/nightly"),
            ("the audit logs", "/var/log/audit", "/data/logs/audit"),
            ("the feature flags", "config/flags.yaml", "settings/flags.toml"),
            ("the migration scripts", "db/migrate", "tools/migrations"),
            ("the TLS certificates", "/etc/ssl/private", "/opt/certs"),
        ),
        before=(
            "{S} are stored in {a}.",
            "{S} live under {a}.",
            "Keep in mind that {s} are in {a}.",
        ),
        after=(
            "We moved {s} from {a} to {b}.",
            "{S} are now stored in {b}.",
            "{S} have moved to {b}.",
            "From now on {s} live under {b}.",
            "I relocated {s} to {b}.",
        ),
        question="Where are {s} stored?",
    ),
    "version": Domain(
        things=(
            ("Python", "3.11", "3.13"),
            ("the Node runtime", "18.20", "22.4"),
            ("Terraform", "1.5.7", "1.9.2"),
            ("the Kubernetes cluster", "1.27", "1.30"),
            ("our Postgres server", "14.9", "16.3"),
        ),
        before=(
            "{S} is at version {a}.",
            "The version of {s} is {a}.",
            "{S} version: {a}",
            "We run {s} {a}.",
        ),
        after=(
            "We upgraded {s} to {b}.",
            "{S} is now at version {b}.",
            "I bumped {s} from {a} to {b}.",
            "{S} has been upgraded to version {b}.",
            "The version of {s} is now {b}.",
        ),
        question="Which version of {s} do we run?",
    ),
    "name": Domain(
        things=(
            ("the internal project", "Bluebird", "Kestrel"),
            ("the main repository", "core-monorepo", "platform"),
            ("the release branch", "release-7", "stable"),
            ("the orders table", "orders_v1", "customer_orders"),
            ("the deploy user", "deployer", "ci-runner"),
        ),
        before=(
            "{S} is called {a}.",
            "The name of {s} is {a}.",
            "{S} is named {a}.",
        ),
        after=(
            "{S} was renamed to {b}.",
            "{S} is now called {b}.",
            "We renamed {s} from {a} to {b}.",
            "The name of {s} is {b} from now on.",
        ),
        question="What is the name of {s}?",
    ),
    "owner": Domain(
        things=(
            ("the payments service", "Alice", "Miguel"),
            ("the onboarding docs", "Priya", "Tomas"),
            ("the search index", "Jonas", "Fatima"),
            ("incident response", "Dana", "Oleg"),
            ("the mobile app", "Wei", "Charlotte"),
        ),
        before=(
            "{a} owns {s}.",
            "The owner of {s} is {a}.",
            "{a} is responsible for {s}.",
            "{S} is owned by {a}.",
            "{a} is the lead of {s}.",
        ),
        after=(
            "{b} took over {s} from {a}.",
            "{b} now owns {s}.",
            "{S} is now owned by {b}.",
            "The new owner of {s} is {b}.",
            "We handed {s} over to {b}.",
            "{b} is now responsible for {s}.",
        ),
        question="Who is the owner of {s}?",
    ),
    "deadline": Domain(
        things=(
            ("the beta launch", "March 3", "April 14"),
            ("the security audit", "June 12", "July 1"),
            ("the grant proposal", "2026-05-02", "2026-05-30"),
            ("the tax return", "May 31", "July 31"),
        ),
        before=(
            "The deadline for {s} is {a}.",
            "{S} is due on {a}.",
            "We have to finish in time: the deadline of {s} is {a}.",
        ),
        after=(
            "The deadline for {s} moved to {b}.",
            "{S} is now due on {b}.",
            "The deadline for {s} is now {b} instead of {a}.",
            "{S} was postponed to {b}.",
            "Good news, the deadline for {s} was extended to {b}.",
        ),
        question="What is the deadline for {s}?",
    ),
    "date": Domain(
        things=(
            ("the team offsite", "September 9", "October 21"),
            ("the quarterly review", "Monday", "Thursday"),
            ("the maintenance window", "2 a.m.", "4 a.m."),
            ("the product demo", "2026-03-10", "2026-03-24"),
        ),
        before=(
            "The date of {s} is {a}.",
            "{S} is scheduled for {a}.",
            "{S} takes place on {a}.",
        ),
        after=(
            "{S} was postponed to {b}.",
            "We rescheduled {s} to {b}.",
            "{S} is now scheduled for {b}.",
            "The date of {s} changed from {a} to {b}.",
        ),
        question="What is the date of {s}, when is it scheduled?",
    ),
    "preference": Domain(
        things=(
            ("indentation", "tabs", "spaces"),
            ("commit messages", "imperative mood", "past tense"),
            ("diagrams", "Mermaid", "Graphviz"),
            ("code review", "small pull requests", "stacked diffs"),
            ("variable names", "camelCase", "snake_case"),
        ),
        before=(
            "I prefer {a} for {s}.",
            "For {s}, I prefer {a}.",
            "My preference for {s} is {a}.",
            "Please always use {a} for {s}.",
        ),
        after=(
            "I now prefer {b} for {s}.",
            "For {s} I prefer {b} these days.",
            "I changed my mind: use {b} for {s}.",
            "My preference for {s} is {b} now.",
            "From now on please use {b} instead of {a} for {s}.",
        ),
        question="What do I prefer for {s}?",
    ),
    "place": Domain(
        things=(
            ("the analytics cluster", "Frankfurt", "Dublin"),
            ("the cold storage", "Virginia", "Oregon"),
            ("our support team", "Lisbon", "Porto"),
            ("the European website", "Hetzner", "OVH"),
            ("the training jobs", "Azure", "CoreWeave"),
        ),
        before=(
            "{S} is hosted in {a}.",
            "{S} is located in {a}.",
            "The location of {s} is {a}.",
            "{S} runs in {a}.",
        ),
        after=(
            "{S} has moved to {b}.",
            "We migrated {s} from {a} to {b}.",
            "{S} is now hosted in {b}.",
            "{S} is located in {b} now.",
            "The location of {s} changed to {b}.",
        ),
        question="Where is {s} located?",
    ),
    "status": Domain(
        things=(
            ("the refund flow", "in progress", "done"),
            ("the data migration", "blocked", "finished"),
            ("the login redesign", "not started", "in review"),
            ("the load test", "failing", "passing"),
            ("ticket OPS-412", "open", "closed"),
        ),
        before=(
            "{S} is {a}.",
            "The status of {s} is {a}.",
            "Status of {s}: {a}",
            "{S} is currently {a}.",
        ),
        after=(
            "{S} is {b}.",
            "{S} is now {b}.",
            "The status of {s} is {b}.",
            "Update: {s} is {b}.",
            "The status of {s} changed from {a} to {b}.",
        ),
        question="What is the status of {s}?",
    ),
    "url": Domain(
        things=(
            ("the API docs", "https://docs.acme.test/v1", "https://api.acme.test/reference"),
            ("the status page", "https://status.acme.test", "https://up.acme.test/now"),
            ("the staging dashboard", "http://dash.stage.test:3000", "https://dash2.stage.test"),
            ("the design wiki", "https://wiki.acme.test/design", "https://notes.acme.test/design"),
            ("the package registry", "https://npm.acme.test", "https://registry.acme.test/npm"),
        ),
        before=(
            "The URL of {s} is {a}.",
            "You can find {s} at {a}.",
            "The address of {s} is {a}",
        ),
        after=(
            "The URL of {s} is now {b}.",
            "The URL of {s} changed to {b}.",
            "We changed the URL of {s} from {a} to {b}.",
            "The new URL of {s} is {b}",
        ),
        question="What is the URL of {s}?",
    ),
    "choice": Domain(
        things=(
            ("background jobs", "Celery", "Temporal"),
            ("CI", "Jenkins", "GitHub Actions"),
            ("error tracking", "Sentry", "GlitchTip"),
            ("the message bus", "RabbitMQ", "NATS"),
            ("end-to-end tests", "Cypress", "Playwright"),
        ),
        before=(
            "We use {a} for {s}.",
            "We decided to use {a} for {s}.",
            "Let's go with {a} for {s}.",
            "We chose {a} for {s}.",
        ),
        after=(
            "We switched from {a} to {b} for {s}.",
            "We now use {b} for {s}.",
            "We decided to use {b} instead of {a} for {s}.",
            "Let's use {b} for {s} from now on.",
            "We replaced {a} with {b} for {s}.",
        ),
        question="What do we use for {s}?",
    ),
    "limit": Domain(
        things=(
            ("the upload", "10 MB", "25 MB"),
            ("the session", "30 minutes", "8 hours"),
            ("the public API", "100", "250"),
            ("the worker", "4", "16"),
            ("the retry queue", "5 seconds", "90 seconds"),
        ),
        before=(
            "The timeout of {s} is {a}.",
            "{S} limit is {a}.",
            "The limit for {s} is set to {a}.",
        ),
        after=(
            "The timeout of {s} is now {b}.",
            "We raised {s} limit from {a} to {b}.",
            "The limit for {s} was raised to {b}.",
        ),
        question="What is the timeout or limit of {s}?",
    ),
}
