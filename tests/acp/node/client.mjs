// A client of the protocol that does what it reads: one JSON object a line, for any number of connections (`n`).
import * as acp from "@agentclientprotocol/sdk";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";

const write = (words) => process.stdout.write(JSON.stringify(words) + "\n");
// The SDK reports there what does not fit the schema.
console.error = (...parts) =>
  write({ problem: parts.map((part) => (typeof part === "string" ? part : JSON.stringify(part))).join(" ") });
process.on("unhandledRejection", (error) => write({ problem: `unhandled: ${error}` }));

const connections = new Map();

function open(n, path) {
  const socket = connect(path);
  const here = { socket, cards: new Map() };
  socket.on("close", () => write({ n, closed: true }));
  socket.on("error", () => {}); // the agent was killed
  const app = acp
    .client({ name: "tests" })
    .onRequest(acp.methods.client.session.requestPermission, (context) => {
      const card = here.cards.size;
      write({ n, card, params: context.params });
      return new Promise((resolve) => here.cards.set(card, resolve));
    })
    .onNotification(acp.methods.client.session.update, (context) => write({ n, update: context.params }));
  here.agent = app.connect(acp.ndJsonStream(Writable.toWeb(socket), Readable.toWeb(socket))).agent;
  connections.set(n, here);
}

function ask({ n, ask: id, method, params }) {
  connections.get(n).agent.request(method, params).then(
    (result) => write({ n, answered: id, result: result ?? null }),
    (error) => write({ n, failed: id, code: error.code ?? 0, message: String(error.message) }),
  );
}

for await (const line of createInterface({ input: process.stdin })) {
  const told = JSON.parse(line);
  const here = connections.get(told.n);
  if ("connect" in told) open(told.n, told.connect);
  else if ("ask" in told) ask(told);
  else if ("note" in told) here.agent.notify(told.note, told.params).catch(() => {});
  else if ("answer" in told) here.cards.get(told.answer)(told.result);
  else if ("close" in told) here.socket.destroy();
}
process.exit(0);
