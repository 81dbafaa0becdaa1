/** The whole inference node as a process, and the lines of its log. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { credentials } from '@grpc/grpc-js';
import { MatteServiceClient } from '@matting/proto/gen/matting/v1/matte_service.ts';
import { CHANNEL_ENV, STDIO_WITH_CHANNEL } from '@matting/test-support/ipc-channel.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import { MatteCaller } from './test-node.ts';

const MAIN = path.resolve(import.meta.dirname, '../../main.ts');

export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export type NodeProgram = ReturnType<typeof startProgram>;

/**
 * Starts the program in an environment of its own, with a file of this folder preloaded if it is
 * named.
 */
export function startProgram(
  env: Record<string, string>,
  {
    hook,
    heldChannel,
    main = MAIN,
  }: {
    hook?: string | undefined;
    heldChannel?: boolean | undefined;
    /** The path of a copy of the program. */
    main?: string;
  },
) {
  const preload = hook === undefined ? [] : ['--import', path.join(import.meta.dirname, hook)];
  const child = spawn(process.execPath, [...preload, main], {
    env: {
      ...STARTED_ENV,
      MATTING_NODE_PORT: '0',
      MATTING_NODE_HTTP_PORT: '0',
      ...(heldChannel ? CHANNEL_ENV : {}),
      ...env,
    },
    stdio: heldChannel ? STDIO_WITH_CHANNEL : ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  const lines: LogLine[] = [];
  let stderr = '';
  child.stderr!.setEncoding('utf8').on('data', text => {
    stderr += text;
  });
  const output = createInterface(child.stdout!);
  output.on('line', line => void lines.push(JSON.parse(line)));
  // Not 'close' of the process: what it leaves behind must hold none of its pipes.
  const ends = [once(child, 'exit'), once(output, 'close'), once(child.stderr!, 'end')] as const;
  const exited = Promise.all(ends).then(([[code]]) => ({ code: code as number, stderr, lines }));
  const until = async (msg: string): Promise<LogLine> => {
    for (;;) {
      const found = lines.find(line => line.msg === msg);
      if (found) return found;
      const over = exited.then(exit => {
        throw new Error(`ended with ${exit.code} before "${msg}": ${exit.stderr}`);
      });
      await Promise.race([once(output, 'line'), over]);
    }
  };
  const caller = async (): Promise<MatteCaller> => {
    const { port } = await until('listening');
    await until('serving');
    const client = new MatteServiceClient(`127.0.0.1:${port}`, credentials.createInsecure());
    const made = new MatteCaller({ client });
    void made.ended.then(() => client.close());
    return made;
  };
  return { child, exited, until, lines, caller };
}
