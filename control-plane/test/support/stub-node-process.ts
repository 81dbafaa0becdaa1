/**
 * A node in a process of its own that takes a fixed time for an image: the scripted node behind a
 * registry. Each line on stdout is a job it was given, `<job> <fence>`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { ScriptedNode } from '../nodes/scripted-node.ts';

const [nodeId, registryPort, imageMs] = process.argv.slice(2);
const node = await ScriptedNode.start({
  nodeId,
  imagesMax: 2,
  script: async exchange => {
    process.stdout.write(`${exchange.header.jobId} ${exchange.header.attempt}\n`);
    exchange.admit();
    const input = await exchange.receive();
    await delay(Number(imageMs));
    exchange.answer(input);
  },
});
await node.join(Number(registryPort));
process.stdout.write('joined\n');
// Its parent ends it; where the parent is gone it must not stay.
process.stdin.on('end', () => process.exit(0)).resume();
