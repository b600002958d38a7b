// peer.mjs MODULES MODEL CONTEXT TOKENS FIRST: llama.cpp's Vulkan backend decodes greedily, one token at a time.
// Everything but the look-up of a token's row is on the device, which llama.cpp's own log must say: anything else is an
// error, so that no layer left on the CPU can pass for a measurement. PEER_KV=F16 and PEER_FLASH=1 try its other paths.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, modelPath, context, tokens, first] = process.argv.slice(2);
const resolve = createRequire(path.join(path.resolve(modules), "node_modules", "any.js")).resolve;
const { getLlama } = await import(pathToFileURL(resolve("node-llama-cpp")).href);

let log = "";
const llama = await getLlama({
    gpu: "vulkan", build: "never", skipDownload: true, vramPadding: 0, ramPadding: 0,
    logLevel: "debug", logger: (_level, text) => { log += text.trimEnd() + "\n"; }
});
const model = await llama.loadModel({ modelPath, gpuLayers: 99, useMmap: false, ignoreMemorySafetyChecks: true });
const kv = process.env.PEER_KV ?? "F32";
const held = await model.createContext({
    contextSize: Number(context), batchSize: 1, sequences: 1, flashAttention: process.env.PEER_FLASH === "1",
    experimentalKvCacheKeyType: kv, experimentalKvCacheValueType: kv, ignoreMemorySafetyChecks: true
});
const said = (what) => {
    const found = log.match(what);
    if (!found) throw new Error(`llama.cpp's log lacks ${what}:\n${log}`);
    return found;
};
console.log(`device     ${said(/using device Vulkan0 \((.*)\) \(/)[1]}`);
const [, on, of] = said(/offloaded (\d+)\/(\d+) layers to GPU/);
const elsewhere = log.match(/(?:layer +\d+ assigned to device|kv_cache: layer +\d+: dev =) (?!Vulkan0)\S+/);
if (on !== of || elsewhere) throw new Error(`${on} of ${of} layers are on the device; ${elsewhere}`);
console.log(`weights    ${said(/file type += (all F32)/)[1]}, ${on} of ${of} layers on the device, KV store ${kv}`);

const steps = held.getSequence().evaluate([Number(first)], { temperature: 0, yieldEogToken: true });
const made = [];
const next = async () => {
    const step = await steps.next();
    if (step.done) throw new Error(`llama.cpp stopped after ${made.length} tokens`);
    made.push(step.value);
};
let begun = performance.now();
await next();
console.log(`first      ${(performance.now() - begun).toFixed(1)} ms, kernels compiled on the way`);
begun = performance.now();
while (made.length <= Number(tokens)) await next();
const each = (performance.now() - begun) / Number(tokens);
console.log(`decode     ${(1e3 / each).toFixed(2)} tokens/s, ${each.toFixed(1)} ms each, f32 weights`);
console.log(`tokens     [${made.join(", ")}]`);
// The binding's own clean-up takes long, and nothing is left to keep.
process.exit(0);
