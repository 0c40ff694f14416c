// Holdfast for OpenClaw.
const COMMAND = process.env.HOLDFAST_COMMAND || "holdfast";
