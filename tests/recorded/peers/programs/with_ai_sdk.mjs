// AI SDK: what `generateText` does with approvals. Run it with Node.js in a folder with the packages `ai` and `zod`.
import { spawn } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(join(process.cwd(), "x.mjs")).resolve(name)).href);
const { generateText, stepCountIs, tool } = await load("ai");
const { MockLanguageModelV4 } = await load("ai/test");
const { z } = await load("zod");
const folder = process.env.FOLDER ?? mkdtempSync(join(tmpdir(), "peer"));
const [log, state] = [join(folder, "paid"), join(folder, "state")];
const [, script, , option] = process.argv;
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
let [calls, prompt] = [1];

const model = new MockLanguageModelV4({
  doGenerate: async (asked) => {
    prompt = asked.prompt;
    const done = { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop" }, usage, warnings: [] };
    if (prompt.some((m) => m.role === "assistant")) return done;
    const content = Array.from({ length: calls }, (_, i) => i + 1).map((euros) => (
      { type: "tool-call", toolCallId: `c${euros}`, toolName: "pay", input: JSON.stringify({ euros }) }));
    return { content, finishReason: { unified: "tool-calls" }, usage, warnings: [] };
  },
});
const pay = tool({
  inputSchema: z.object({ euros: z.number() }),
  execute: async ({ euros }) => {
    appendFileSync(log, `${euros} `);
    if (option === "die") process.exit(9);
    await new Promise((done) => setTimeout(done, option === "slow" ? 500 : 0));
    return "ok";
  },
});
const fixed = { model, tools: { pay }, toolApproval: { pay: "user-approval" }, stopWhen: stepCountIs(5) };
const run = (messages, more) => generateText({ ...fixed, messages, ...more });
const begin = async (more) => {
  const go = [{ role: "user", content: "go" }];
  writeFileSync(state, JSON.stringify([...go, ...(await run(go, more)).response.messages]));
};
const resume = async (decisions, { edit, message, ...more } = {}) => {
  const messages = JSON.parse(readFileSync(state));
  const parts = messages[1].content;
  const ids = parts.filter((p) => p.type === "tool-approval-request").map((p) => p.approvalId);
  if (edit) parts.find((p) => p.type === "tool-call").input = { euros: 9 };
  const content = decisions.map((approved, i) => ({ type: "tool-approval-response", approvalId: ids[i], approved }));
  messages.push(message ?? { role: "tool", content });
  const { text } = await run(messages, more);
  const results = prompt.flatMap((m) => (m.role === "tool" ? m.content : [])).map((p) => p.output);
  return [text, "results", ...results.map((r) => JSON.stringify(r))].join(" ");
};
const processes = (...options) => Promise.all(options.map((each) => new Promise((done) => {
  const env = { ...process.env, FOLDER: folder };
  spawn(process.execPath, [script, "resume", each], { env, stdio: "inherit" }).on("exit", done);
})));
const show = async (what, act, { of = 1, ...more } = {}) => {
  calls = of;
  await begin(more);
  const seen = [];
  for (const each of act) seen.push(await each().catch((error) => `${error.name}: ${error.message.slice(0, 60)}`));
  console.log(`${what}: ${seen.join(" | ")}; paid ${existsSync(log) ? readFileSync(log) : "nothing"}`);
  rmSync(log, { force: true });
};
if (process.argv[2] === "resume") process.exit((await resume([true])).startsWith("done") ? 0 : 1);
console.log("AI SDK", JSON.parse(readFileSync(join(process.cwd(), "node_modules/ai/package.json"))).version);
const [yes, no, secret] = [() => resume([true]), () => resume([false]), { experimental_toolApprovalSecret: "s" }];
await show("two processes", [() => processes("slow", "slow")]);
await show("killed, then resumed", [() => processes("die"), () => processes("again")]);
await show("approved twice", [yes, yes]);
await show("denied", [no]);
await show("one of two", [yes], { of: 2 });
await show("malformed, then right", [() => resume(["aprove"]), yes]);
await show("edited in the saved state", [() => resume([true], { edit: true })]);
await show("edited in the saved state, with a secret", [() => resume([true], { edit: true, ...secret })], secret);
await show("a new message while a call waits", [() => resume([], { message: { role: "user", content: "also" } })]);
