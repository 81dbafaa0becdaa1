import { runCommand } from '@matting/core/run-command.ts';
import { wholeEnvironment } from './config.ts';
import { PACKAGES } from './packages.ts';

const stopped = Promise.withResolvers<void>();

// EPIPE: a reader such as `head` has stopped. The command ends without an error.
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

// Otherwise a pending check or an idle connection would keep the process running.
process.stdout.write('', () => process.exit());
