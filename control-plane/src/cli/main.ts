/** `node control-plane/src/cli/main.ts <command>`: see program.ts. */
import { runCommand } from './program.ts';

process.exitCode = await runCommand(process.argv.slice(2), {
  out: text => process.stdout.write(text),
  err: text => process.stderr.write(text),
  interrupted: async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
    await promise;
  },
});
