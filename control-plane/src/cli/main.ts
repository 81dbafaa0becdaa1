/** `node control-plane/src/cli/main.ts <command>`: see program.ts. */
import { runCommand } from './program.ts';

const enough = Promise.withResolvers<void>();

// Who reads no further, as `head` does, has had enough: what was begun is ended in order, unseen.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  enough.resolve();
});

process.exitCode = await runCommand(process.argv.slice(2), {
  out: text => process.stdout.write(text),
  err: text => process.stderr.write(text),
  interrupted: async () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, enough.resolve);
    await enough.promise;
  },
});
