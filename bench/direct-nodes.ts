/**
 * Stub nodes in a process of their own that cut nothing out: each image becomes a file of the size
 * that a cut-out has, streamed, or got and put at the storage where they are asked to. Arguments:
 * how many, bytes of a result, registry port, origin of the storage or nothing.
 */
import { createHash, randomBytes } from 'node:crypto';
import { ScriptedNode } from '../control-plane/test/nodes/scripted-node.ts';
import { pngHeader } from '../control-plane/test/support/test-app.ts';

const [count = '1', resultBytes = '1', registryPort = '', origin = ''] = process.argv.slice(2);
const IMAGES_MAX = 3;

async function startNode(index: number): Promise<void> {
  const node = await ScriptedNode.start({
    nodeId: `direct-stub-${registryPort}-${index}`,
    imagesMax: IMAGES_MAX,
    info: { directOrigins: origin === '' ? [] : [origin] },
    load: () => ({ inferMs: 1 }),
    script: async exchange => {
      const { width, height, directOrigin } = exchange.header;
      const result = Buffer.concat([pngHeader(width, height), randomBytes(Number(resultBytes))]);
      const sha256 = createHash('sha256').update(result).digest();
      exchange.admit();
      if (directOrigin === '') {
        await exchange.receive();
        exchange.announce(result);
        exchange.send(result);
      } else {
        const { url } = await exchange.references();
        await (await fetch(url)).arrayBuffer();
        const place = await exchange.askPlace(result);
        const { 'content-length': _, ...headers } = place.headers;
        const answer = await fetch(place.url, { method: 'PUT', headers, body: result });
        if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
      }
      exchange.done(sha256);
      exchange.end();
    },
  });
  await node.join(Number(registryPort));
}

await Promise.all(Array.from({ length: Number(count) }, (_, index) => startNode(index)));
process.stdout.write('joined\n');
// Its parent ends it; where the parent is gone it must not stay.
process.stdin.on('end', () => process.exit(0)).resume();
