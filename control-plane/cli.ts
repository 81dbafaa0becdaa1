/** `node control-plane/cli.ts <command>`: the operator's commands, of the core and all packages. */

import { runCommand } from '@matting/core/run-command.ts';
import { wholeEnvironment } from './config.ts';
import { PACKAGES } from './packages.ts';

const enough = Promise.withResolvers<void>();

// A reader that stops reading, as `head` does: the command ends in order, without output.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  enough.resolve();
});

const output = {
  out: (text: string) => process.stdout.write(text),
  err: (text: string) => process.stderr.write(text),
  interrupted: async () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, enough.resolve);
    await enough.promise;
  },
};
process.exitCode = await runCommand(process.argv.slice(2), output, wholeEnvironment(), PACKAGES);

// A pending check of the doctor, or a connection kept alive, would hold the terminal.
process.stdout.write('', () => process.exit());
