/** The whole inference node as a process, with its log. */

import path from 'node:path';
import { credentials } from '@grpc/grpc-js';
import { MatteServiceClient } from '@matting/proto/gen/matting/v1/matte_service.ts';
import { type Env, Program } from '@matting/test-support/program.ts';
import { MatteCaller } from './test-node.ts';

export type { LogLine } from '@matting/test-support/program.ts';

const MAIN = path.resolve(import.meta.dirname, '../../main.ts');

export type NodeProgram = ReturnType<typeof startProgram>;

/** `hook`: a preloaded file of this folder. `main`: path of a copy of the program. */
export function startProgram(
  env: Env,
  {
    hook,
    heldChannel,
    main = MAIN,
  }: { hook?: string | undefined; heldChannel?: boolean | undefined; main?: string },
) {
  const preload = hook === undefined ? [] : ['--import', path.join(import.meta.dirname, hook)];
  const ports = { MATTING_NODE_PORT: '0', MATTING_NODE_HTTP_PORT: '0' };
  const channel = heldChannel ? 'held' : 'messages';
  const program = new Program('node', [...preload, main], { ...ports, ...env }, { channel });
  program.start();
  const { child } = program;
  const exited = program.exited.then(code => {
    const { complaint: stderr, lines } = program;
    return { code, stderr, lines };
  });
  const until = (msg: string) => program.line(msg);
  const caller = async (): Promise<MatteCaller> => {
    const { port } = await until('listening');
    await until('serving');
    const client = new MatteServiceClient(`127.0.0.1:${port}`, credentials.createInsecure());
    const made = new MatteCaller({ client });
    void made.ended.then(() => client.close());
    return made;
  };
  return { child, exited, until, caller };
}
