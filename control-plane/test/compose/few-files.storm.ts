/** Silent connections at a process with few file descriptors. */
import net from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { Program } from '@matting/test-support/program.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test from 'ava';

const MAIN = path.resolve(import.meta.dirname, '../../main.ts');
const FILES_MAX = 256;
/** More than there are file descriptors. */
const STRANGERS = 400;

test.runIf(process.platform === 'linux')(
  'few open files are said, and silent connections close it to nobody',
  async t => {
    const folder = await temporaryFolder(t);
    const env = planeEnv(folder, `sqlite:${path.join(folder, 'matting.sqlite')}`);
    const main = new Program('control plane', [MAIN], env, { openFilesMax: FILES_MAX });
    t.teardown(() => main.kill());
    main.start();
    const { http: port, connectionsMax } = await main.line<{ http: number }>('listening');
    t.is(connectionsMax, FILES_MAX / 2);
    const few = await main.line('few files may be open');
    t.deepEqual([few.connectionsMax, few.openFilesMax], [FILES_MAX / 2, FILES_MAX]);
    const strangers = Array.from({ length: STRANGERS }, () =>
      net.connect(port, '127.0.0.1').on('error', () => undefined),
    );
    t.teardown(() => strangers.forEach(socket => void socket.destroy()));
    // The first connections made room for the last.
    while (strangers.some(({ connecting }) => connecting)) await delay(10);
    for (let count = 0; count < 24; count += 1) {
      const headers = { connection: 'close' };
      const answer = await fetch(`http://127.0.0.1:${port}/livez`, { headers });
      t.is(answer.status, 200);
    }
  },
);
