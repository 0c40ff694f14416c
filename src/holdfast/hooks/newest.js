// The newest messages that fit a window, for requests that memory does not answer. Messages are those of pi and OpenClaw.

export const MESSAGES_SHARE = 0.75; // of a model's window; the rest is for the system prompt, the tools and the reply
const CHARS_PER_TOKEN = 3;
const IMAGE_TOKENS = 1600;
const MESSAGE_TOKENS = 4;
const STEP_SHARE = 0.15; // of the budget: cuts go in whole steps, so that the beginning stays the same for a while
const EXCERPT_CHARS = [4000, 400]; // of a result that does not fit, and of one that still does not
const SUMMARY = "compactionSummary"; // the role of the host's own summary

// Estimates as Holdfast does: a character outside of ASCII, such as a Chinese one, counts as a whole token.
export function estimateTokens(message) {
  const { details, usage, timestamp, ...sent } = message;
  let tokens = MESSAGE_TOKENS;
  const text = JSON.stringify(sent, (_key, value) => {
    if (value?.type !== "image") return value;
    tokens += IMAGE_TOKENS;
    return undefined;
  });
  let ascii = 0;
  for (const character of text) {
    if (character < "\u0080") ascii++;
    else tokens++;
  }
  return tokens + Math.ceil(ascii / CHARS_PER_TOKEN);
}

const countTokens = (messages) => messages.reduce((sum, message) => sum + estimateTokens(message), 0);

const callIds = (message) =>
  message.role === "assistant" && Array.isArray(message.content)
    ? message.content.filter((part) => part.type === "toolCall").map((part) => part.id)
    : [];

// Groups messages that a provider only takes together: a reply with tool calls, and everything up to its last result.
function groupUnits(messages) {
  const units = [];
  let start = 0;
  while (start < messages.length) {
    let stop = start + 1;
    const ids = new Set(callIds(messages[start]));
    for (let index = stop; ids.size && index < messages.length && messages[index].role !== "assistant"; index++)
      if (ids.has(messages[index].toolCallId)) stop = index + 1;
    units.push(messages.slice(start, stop));
    start = stop;
  }
  return units;
}

function shortenResult(message, limit) {
  if (message.role !== "toolResult") return message;
  const parts = Array.isArray(message.content) ? message.content : [{ type: "text", text: String(message.content) }];
  const text = parts.map((part) => part.text ?? "").join("\n");
  const hasImage = parts.some((part) => part.type === "image");
  if (text.length <= limit && !hasImage) return message;
  const half = Math.floor(limit / 2);
  const note = `[Tool result trimmed: kept the beginning and the end of ${text.length} characters.]`;
  const kept = text.length > limit ? `${text.slice(0, half)}\n[...]\n${text.slice(-half)}` : text;
  return { ...message, content: [{ type: "text", text: `${kept}\n\n${note}` }] };
}

// Returns the newest messages that fit into so many tokens: whole units, beginning with a message of the user. The last
// request and the tool calls after it stay, and so does a summary of the host. With `questionFollows` the host sends the
// question after these messages, so that none of them has to stay.
export function newestThatFit(messages, budget, { questionFollows = false } = {}) {
  const units = groupUnits(messages);
  const mustStay = new Set(units.filter((unit) => unit[0].role === SUMMARY));
  if (!questionFollows && units.length) {
    const last = units.length - 1;
    const request = units.findLast((unit) => unit[0].role === "user");
    if (request) mustStay.add(request);
    for (const limit of EXCERPT_CHARS) {
      const kept = [...mustStay, units[last]].flat();
      if (countTokens(kept) > budget) units[last] = units[last].map((message) => shortenResult(message, limit));
    }
    mustStay.add(units[last]);
  }
  const sizes = new Map(units.map((unit) => [unit, countTokens(unit)]));
  const over = countTokens(units.flat()) - budget;
  const step = Math.max(1, Math.floor(budget * STEP_SHARE));
  let excess = over > 0 ? step * (Math.floor(over / step) + 1) : 0;
  const kept = [];
  for (const unit of units) {
    const isFirst = kept.every(([first]) => first.role === SUMMARY);
    const isLeadingReply = isFirst && ["assistant", "toolResult"].includes(unit[0].role);
    if (!mustStay.has(unit) && (excess > 0 || (over > 0 && isLeadingReply))) excess -= sizes.get(unit);
    else kept.push(unit);
  }
  return kept.flat();
}
