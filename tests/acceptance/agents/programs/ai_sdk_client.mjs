// Vercel's `ai` with its usual model of `@ai-sdk/openai`, which names what the server keeps. Prints as `given_runs` does.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { readFileSync } from "node:fs";

const QUESTIONS = ["«weather» Which is warmest: Oslo, Rome or Bern?", "Are you sure?"];
const WARMTH = { Oslo: "3.5", Rome: "21.5", Bern: "9" };
const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

async function talk({ is_streamed: isStreamed, environ }) {
  Object.assign(process.env, environ);
  const openai = createOpenAI(); // reads the address and the key of this run
  const cities = [];
  const execute = async ({ city }) => {
    cities.push(city);
    return WARMTH[city];
  };
  const weather = tool({ description: "Temperature of a city.", inputSchema: jsonSchema(PARAMETERS), execute });
  const messages = [];
  const answers = [];
  let numPieces = 0;
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    const asked = { model: openai("gpt-5"), system: "Use the tool.", messages, tools: { weather }, stopWhen: stepCountIs(9) };
    const result = isStreamed ? streamText(asked) : await generateText(asked);
    if (isStreamed) for await (const _ of result.textStream) numPieces += 1;
    messages.push(...(await result.response).messages);
    answers.push(await result.text);
  }
  console.log(JSON.stringify({ answers, cities: cities.sort(), num_pieces: numPieces }));
}

for (const run of JSON.parse(readFileSync(0, "utf8"))) await talk(run);
