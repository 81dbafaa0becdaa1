/**
 * Stub nodes in one process: each takes a fixed time for an image, one at a time, and says so in
 * its reports as a real node does. Arguments: how many, ms an image, the first one's number, then
 * registry ports.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { ScriptedNode } from '../control-plane/core/test/scripted-node.ts';
import { at } from '../test/support/at.ts';

const [count = 1, imageMs = 0, first = 0, ...registryPorts] = process.argv.slice(2).map(Number);
/** One in work, one on its way. */
const IMAGES_MAX = 3;

async function startNode(index: number): Promise<void> {
  let freeAtMs = 0;
  const waitMs = () => Math.max(0, freeAtMs - performance.now());
  const node = await ScriptedNode.start({
    nodeId: `stub-${index}`,
    imagesMax: IMAGES_MAX,
    load: () => ({ estimatedWaitMs: Math.round(waitMs()), inferMs: imageMs }),
    script: async exchange => {
      const { waitMsMax } = exchange.header;
      if (waitMsMax > 0 && waitMs() > waitMsMax) {
        exchange.fail('NODE_OVERLOADED');
        return;
      }
      const beginsAtMs = Math.max(freeAtMs, performance.now());
      freeAtMs = beginsAtMs + imageMs;
      exchange.admit();
      const input = await exchange.receive();
      await delay(Math.max(0, beginsAtMs + imageMs - performance.now()));
      exchange.answer(input);
    },
  });
  await node.join(at(registryPorts, index % registryPorts.length));
}

await Promise.all(Array.from({ length: count }, (_, index) => startNode(first + index)));
process.stdout.write('joined\n');
// Its parent ends it; where the parent is gone it must not stay.
process.stdin.on('end', () => process.exit(0)).resume();
