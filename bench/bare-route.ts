/**
 * The least a REST service can be: Fastify with one route that answers a given text, in a process
 * of its own. Started as a program it reads the text from its environment and prints its port.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import fastify from 'fastify';

export async function startBareRoute(
  body: string,
): Promise<{ readonly origin: string; close(): Promise<void> }> {
  const child = spawn(process.execPath, [import.meta.filename], {
    env: { BODY: body },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [port] = await once(createInterface(child.stdout), 'line');
  return {
    origin: `http://127.0.0.1:${port}`,
    close: async () => {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    },
  };
}

if (import.meta.main) {
  const job = JSON.parse(process.env.BODY ?? '');
  const app = fastify();
  app.get('/job', (_request, reply) => reply.send(job));
  await app.listen({ host: '127.0.0.1', port: 0 });
  console.log((app.server.address() as AddressInfo).port);
}
