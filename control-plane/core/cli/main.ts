/** `node control-plane/core/cli/main.ts <command>`: see program.ts. */
import { runCommand } from './program.ts';

const enough = Promise.withResolvers<void>();

// A reader that stops reading, as `head` does: the command ends in order, without output.
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

// What a look of the doctor still waits for, or a connection kept alive, holds nobody's terminal.
process.stdout.write('', () => process.exit());
