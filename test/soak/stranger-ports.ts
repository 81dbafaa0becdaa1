/**
 * The ports that strangers reach, in a process of their own, so that its memory is theirs: a node's
 * gRPC port over fake pools, a registry, and the public port with a result behind links.
 */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { imageBody, openTestApp } from '../../control-plane/test/support/test-app.ts';
import { openTestNode } from '../../inference-node/test/grpc/test-node.ts';

/** What the process tells its parent. */
export interface StrangerPorts {
  readonly node: number;
  readonly rest: number;
  /** The fleet's token. */
  readonly nodeToken: string;
  readonly apiKey: string;
  /** Paths of result links, each of another job. */
  readonly links: readonly string[];
}

const LINKS = 40;
const RESULT_BYTES = 8 * 1024 * 1024;

const nodeToken = randomUUID();
const node = await openTestNode({ token: nodeToken });
const app = await openTestApp({ credits: 10_000 });
await app.app.listen({ port: 0, host: '127.0.0.1' });
const links: string[] = [];
for (let count = 0; count < LINKS; count += 1) {
  const job = await app.post('/v1/matting/jobs', imageBody());
  const { token } = await app.succeedJob(job.json().job_id, Buffer.alloc(RESULT_BYTES, 1));
  links.push(`/v1/results/${token}`);
}
const ports: StrangerPorts = {
  node: Number(node.address.split(':')[1]),
  rest: (app.app.server.address() as AddressInfo).port,
  nodeToken,
  apiKey: app.token,
  links,
};
process.on('message', async message => {
  if (message === 'size') process.send?.({ residentBytes: process.memoryUsage.rss() });
  if (message !== 'end') return;
  await Promise.all([node.close(), app.close()]);
  process.exit(0);
});
process.send?.(ports);
