// Mastra: what an agent does with approvals. Run it with Node.js 22.13 or later in a folder with the packages
// `@mastra/core`, `@mastra/libsql` and `zod`.
import { spawn } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(join(process.cwd(), "x.mjs")).resolve(name)).href);
const { Mastra } = await load("@mastra/core/mastra");
const { Agent } = await load("@mastra/core/agent");
const { createTool } = await load("@mastra/core/tools");
const { LibSQLStore } = await load("@mastra/libsql");
const { createClient } = await load("@libsql/client");
const { z } = await load("zod");
const folder = process.env.FOLDER ?? mkdtempSync(join(tmpdir(), "peer"));
const [log, state, store] = ["paid", "state", "store.db"].map((name) => join(folder, name));
const [, script, , option] = process.argv;
let [calls, prompt] = [1];

const answer = (asked) => {
  prompt = asked.prompt;
  if (prompt.some((m) => m.role === "assistant")) return [[{ type: "text", text: "done" }], "stop"];
  const made = Array.from({ length: calls }, (_, i) => i + 1).map((euros) => (
    { type: "tool-call", toolCallId: `c${euros}`, toolName: "pay", input: JSON.stringify({ euros }) }));
  return [made, "tool-calls"];
};
const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2 };
const parts = (asked) => {
  const [content, finishReason] = answer(asked);
  const spoken = content.flatMap((part) => (part.type === "text"
    ? ["text-start", "text-delta", "text-end"].map((type) => ({ type, id: "t", delta: part.text }))
    : [part]));
  return [{ type: "stream-start", warnings: [] }, ...spoken, { type: "finish", finishReason, usage }];
};
const model = {
  specificationVersion: "v2", provider: "fake", modelId: "fake", supportedUrls: {},
  doGenerate: async (asked) => {
    const [content, finishReason] = answer(asked);
    return { content, finishReason, usage, warnings: [] };
  },
  doStream: async (asked) => ({ stream: ReadableStream.from(parts(asked)) }),
};
const pay = createTool({
  id: "pay", description: "Pay.", requireApproval: true,
  inputSchema: z.object({ euros: z.number() }), outputSchema: z.object({ paid: z.boolean() }),
  execute: async ({ euros }) => {
    appendFileSync(log, `${euros} `);
    if (option === "die") process.exit(9);
    await new Promise((done) => setTimeout(done, option === "slow" ? 500 : 0));
    return { paid: true };
  },
});
const open = () => {
  const agent = new Agent({ id: "clerk", name: "clerk", instructions: "Pay.", model, tools: { pay } });
  const storage = new LibSQLStore({ id: "store", url: `file:${store}` });
  return new Mastra({ agents: { clerk: agent }, storage, logger: false }).getAgent("clerk");
};
const begin = async () => {
  const { finishReason, runId } = await open().generate("go");
  if (finishReason !== "suspended") throw new Error(`it ended as ${finishReason}`);
  writeFileSync(state, runId);
};
const resume = async (decision, toolCallId = "c1") => {
  const [agent, runId] = [open(), readFileSync(state, "utf8")];
  const decide = decision === "deny" ? "declineToolCallGenerate" : "approveToolCallGenerate";
  const { text, finishReason } = await agent[decide]({ runId, toolCallId });
  const results = (prompt ?? []).flatMap((m) => (m.role === "tool" ? m.content : [])).map((p) => p.output);
  return [text || finishReason, "results", ...results.map((r) => JSON.stringify(r))].join(" ");
};
const edit = async () => {
  const client = createClient({ url: `file:${store}` });
  const changed = `jsonb(replace(json(snapshot), '"euros":1', '"euros":9'))`;
  await client.execute(`UPDATE mastra_workflow_snapshot SET snapshot = ${changed}`);
  client.close();
  return resume("approve");
};
const processes = (...options) => Promise.all(options.map((each) => new Promise((done) => {
  const env = { ...process.env, FOLDER: folder };
  const child = spawn(process.execPath, [script, "resume", each], { env, stdio: "inherit" });
  child.on("exit", (code) => done(`exit ${code}`));
})));
const show = async (what, act, { of = 1 } = {}) => {
  calls = of;
  await begin();
  const seen = [];
  for (const each of act) seen.push(await each().catch((error) => `${error.name}: ${error.message.slice(0, 90)}`));
  console.log(`${what}: ${seen.join(" | ")}; paid ${existsSync(log) ? readFileSync(log) : "nothing"}`);
  for (const file of [log, store, `${store}-wal`, `${store}-shm`]) rmSync(file, { force: true });
};
if (process.argv[2] === "resume") process.exit((await resume("approve")).startsWith("done") ? 0 : 1);
console.log("Mastra", JSON.parse(readFileSync(join(process.cwd(), "node_modules/@mastra/core/package.json"))).version);
const [yes, no] = [() => resume("approve"), () => resume("deny")];
await show("two processes", [() => processes("slow", "slow")]);
await show("killed, then resumed", [() => processes("die"), () => processes("again")]);
await show("approved twice", [yes, yes]);
await show("denied", [no]);
await show("one of two", [yes, () => resume("approve", "c2")], { of: 2 });
await show("a call that does not exist, then the right one", [() => resume("approve", "other"), yes]);
await show("approved, then denied", [yes, no]);
await show("edited in the saved state", [edit]);
process.exit(0);
