/** Starts a child that blocks its thread, prints its pid and waits to be killed. */
import path from 'node:path';
import { Child } from '../process/child.ts';
import type { Answer } from './obedient-child.ts';

const child = new Child<Answer>({
  program: path.join(import.meta.dirname, 'obedient-child.ts'),
  env: {},
  onOutput: text => process.stderr.write(text),
  onFrame: ({ head }) => {
    if (head.did === 'start-a-process') {
      process.stdout.write(`${head.pid}\n`);
      void child.send({ do: 'block' });
    } else {
      process.stdout.write(`${child.pid}\n`);
    }
  },
  onExit: () => undefined,
});
void child.send({ do: 'start-a-process' });
