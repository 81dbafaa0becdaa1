/** A child that does what messages order. */
import { spawn } from 'node:child_process';
import { closeSync, writeSync } from 'node:fs';
import { encodeFrame } from '../process/frames.ts';
import { serveParent } from '../process/serve-parent.ts';

export type Order =
  | { readonly do: 'echo' | 'environment' | 'garbage' | 'block' | 'throw' | 'start-a-process' }
  | { readonly do: 'close-and-stop' }
  | { readonly do: 'exit'; readonly code: number }
  | { readonly do: 'complain'; readonly text: string };

export interface Answer {
  readonly did: Order['do'];
  readonly environment?: NodeJS.ProcessEnv;
  readonly pid?: number;
}

const channel = serveParent<Order>(async ({ head: order, parts }) => {
  switch (order.do) {
    case 'echo':
      await channel.send({ did: 'echo' }, parts);
      break;
    case 'environment':
      await channel.send({ did: 'environment', environment: process.env });
      break;
    case 'garbage':
      writeSync(3, 'this is no frame at all');
      break;
    case 'block':
      // Not by the loop, which is blocked from here on, as under native code.
      writeSync(3, Buffer.concat(encodeFrame({ did: 'block' }, [])));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      break;
    case 'throw':
      throw new Error('told to');
    case 'start-a-process': {
      const { pid } = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
      await channel.send({ did: 'start-a-process', pid });
      break;
    }
    case 'close-and-stop':
      closeSync(3);
      process.kill(process.pid, 'SIGSTOP');
      break;
    case 'complain':
      process.stderr.write(order.text);
      await channel.send({ did: 'complain' });
      break;
    case 'exit':
      process.exit(order.code);
  }
});
