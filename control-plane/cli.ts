import { runCommand } from '@matting/core/run-command.ts';
import { wholeEnvironment } from './config.ts';
import { PACKAGES } from './packages.ts';

const stopped = Promise.withResolvers<void>();

// A reader such as `head` stops reading: the command ends in order, without output.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  stopped.resolve();
});

const output = {
  out: (text: string) => process.stdout.write(text),
  err: (text: string) => process.stderr.write(text),
  interrupted: async () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, stopped.resolve);
    await stopped.promise;
  },
};
process.exitCode = await runCommand(process.argv.slice(2), output, wholeEnvironment(), PACKAGES);

// A pending check or a kept connection would otherwise hold the terminal.
process.stdout.write('', () => process.exit());
