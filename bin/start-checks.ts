/** Fails a start early, before any program runs. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { createServer } from 'node:net';
import { makeDirectory } from '@matting/program/files.ts';
import { PORTS } from '@matting/program/shared-settings.ts';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import type { Ports, SupervisorConfig } from './config.ts';
import { LOOPBACK } from './stack-programs.ts';

/** Creates it if missing. A directory of models may be read-only. */
export async function requireDirectory(
  directory: string,
  variable: string,
  rights = constants.R_OK | constants.W_OK | constants.X_OK,
): Promise<void> {
  try {
    makeDirectory(directory, 0o700);
    await access(directory, rights);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new CommandError(
      `cannot use the directory ${directory} (${code}); make it writable or set ${variable}`,
    );
  }
}

/** @throws CommandError names the port and its variable */
export async function requireFreePorts(config: SupervisorConfig): Promise<void> {
  const further = config.nodes.slice(1).flatMap(({ port, httpPort }) => [port, httpPort]);
  for (const [name, port] of [
    ...(Object.entries(config.ports) as [keyof Ports, number][]),
    ...further.map(port => ['nodeHttp', port] as const),
  ]) {
    const host = name === 'http' ? config.host : LOOPBACK;
    const code = await listenError(host, port);
    if (code === undefined) continue;
    const variable = PORTS[name].variable;
    const why =
      code === 'EADDRINUSE'
        ? `port ${port} is in use; stop the program on it, or set ${variable} to a free port`
        : `cannot listen on ${host}:${port} (${code}); set ${variable} or MATTING_HOST`;
    throw new CommandError(why);
  }
}

function listenError(host: string, port: number): Promise<string | undefined> {
  return new Promise(resolve => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown error'));
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
}
