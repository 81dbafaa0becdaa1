/** A node's gRPC port over fake pools, as a process, for its memory. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { openTestNode } from '../../inference-node/serving/test/test-node.ts';

/** The fleet's token. */
export const TOKEN = 'a-node-token-of-the-soak';

export class NodePort {
  readonly port: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.port = port;
  }

  static async open(): Promise<NodePort> {
    const child = fork(import.meta.filename);
    const [port] = (await once(child, 'message')) as [number];
    return new NodePort(child, port);
  }

  async residentBytes(): Promise<number> {
    this.#child.send('memory');
    const [bytes] = (await once(this.#child, 'message')) as [number];
    return bytes;
  }

  async close(): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.send('end');
    await exited;
  }
}

if (process.argv[1] === import.meta.filename) {
  const node = await openTestNode({ token: TOKEN });
  process.on('message', async message => {
    if (message === 'memory') process.send?.(process.memoryUsage.rss());
    if (message !== 'end') return;
    await node.close();
    process.exit(0);
  });
  process.send?.(Number(node.address.split(':')[1]));
}
