// Clients of the protocol's own library, driven by lines of JSON: one command a line, answered by a line with its number.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const agents = new Map();
let unhandled = [];
process.on("unhandledRejection", (error) => unhandled.push(String(error)));
console.error = console.warn = console.log = () => {}; // the library warns of what a test makes on purpose

const commands = {
  make({ name, url, thread, user, messages, state }) {
    const headers = { "x-user": user };
    const agent = new HttpAgent({ url, threadId: thread, headers, initialMessages: messages ?? [], initialState: state ?? {} });
    agents.set(name, { agent, events: [], errors: [], first: null });
    agent.subscribe({
      onEvent: ({ event }) => {
        const own = agents.get(name);
        own.events.push(event);
        own.seen?.(event);
      },
      onRunErrorEvent: ({ event }) => void agents.get(name).errors.push(event.code),
      onRunFailed: ({ error }) => void agents.get(name).errors.push(`failed: ${error.message}`),
    });
  },
  add({ name, message }) {
    agents.get(name).agent.addMessage(message);
  },
  move({ name, url }) {
    agents.get(name).agent.url = url;
  },
  async run({ name, params }) {
    const own = agents.get(name);
    Object.assign(own, { events: [], errors: [] });
    unhandled = [];
    const found = { refused: null };
    try {
      found.result = (await own.agent.runAgent(params)).result ?? null;
    } catch (error) {
      found.refused = error.message;
      found.status = error.status ?? null;
    }
    return { ...found, events: own.events, errors: own.errors, unhandled, ...commands.look({ name }) };
  },
  // Wait until a client has seen an event of a type in its run.
  until({ name, type }) {
    const own = agents.get(name);
    return new Promise((seen) => {
      own.seen = (event) => void (event.type === type && seen(true));
      if (own.events.some((event) => event.type === type)) seen(true);
    });
  },
  leave({ name }) {
    agents.get(name).agent.abortRun();
  },
  look({ name }) {
    const { agent } = agents.get(name);
    return { messages: agent.messages, pending: agent.pendingInterrupts, state: agent.state };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { number, command, ...given } = JSON.parse(line);
  Promise.resolve()
    .then(() => commands[command](given))
    .then((answer) => process.stdout.write(`${JSON.stringify({ number, answer: answer ?? null })}\n`))
    .catch((error) => process.stdout.write(`${JSON.stringify({ number, failed: error.stack })}\n`));
}
