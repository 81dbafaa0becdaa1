/** MATTING_COMMERCIAL_USE as a person meets it: what is refused, and what runs under which terms. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { credentials, Metadata, type ServiceError } from '@grpc/grpc-js';
import ava from 'ava';
import {
  type GetNodeInfoResponse,
  MatteHeader,
  MatteServiceClient,
} from '#gen/matting/v1/matte_service.ts';
import {
  isolatedEnv,
  type RunningService,
  requireNothingLeft,
  spawnMatting,
  startService,
} from '../support/running-service.ts';

const test = ava.serial;

const folder = mkdtempSync(path.join(tmpdir(), 'matting-commercial-use-'));
let service: RunningService | undefined;
test.after.always(async () => {
  if (service?.process.exitCode === null) await service.close();
  rmSync(folder, { recursive: true, force: true });
});

for (const [command, gate, quality, refused] of [
  ['up', 'weights', 'standard', ['isnet']],
  ['up', 'strict', 'permissive', ['u2netp', 'modnet']],
  ['cutout', 'weights', 'fast', ['isnet']],
  ['cutout', 'strict', 'best', ['isnet', 'modnet']],
] as const) {
  test(`${command} refuses ${quality} under ${gate}, and fetches and makes nothing`, async t => {
    const modelDir = path.join(folder, `${command}-${gate}`);
    const { env, dataDir } = await isolatedEnv({
      MATTING_COMMERCIAL_USE: gate,
      MATTING_QUALITY: quality,
      MATTING_MODEL: '',
      MATTING_MODEL_DIR: modelDir,
      // The discard port: a fetch would say that it fails.
      npm_config_registry: 'http://127.0.0.1:9/',
    });
    const args = command === 'up' ? [command] : [command, '--out', path.join(folder, 'cut.png')];
    const { exited, output } = spawnMatting(args, env);
    t.is(await exited, 78, output());
    const said = [...output().matchAll(/must be met by every model: \w+ refuses (\w+) \(/g)];
    t.deepEqual(
      said.map(([, model]) => model),
      refused,
      output(),
    );
    t.regex(output(), /must be .*a model of your own \(models\/README\.md, "Commercial use"\)/);
    t.notRegex(output(), /Fetching|cannot fetch|Ready:|\n\s+at /);
    for (const model of refused) t.true(!existsSync(path.join(modelDir, model)));
    await requireNothingLeft(dataDir);
  });
}

test('under weights the permissive plan runs, says its terms, and no caller reaches isnet', async t => {
  service = await startService({
    MATTING_COMMERCIAL_USE: 'weights',
    MATTING_QUALITY: 'permissive',
    MATTING_MODEL: '',
  });
  const [said] = /^Models: plan permissive, commercial use: .*$/m.exec(service.output()) ?? [];
  t.regex(said ?? '', /u2netp weights yes, training data unclear/, service.output());
  t.notRegex(said ?? '', /isnet/);

  const metadata = new Metadata();
  const token = readFileSync(path.join(service.dataDir, 'node-token'), 'utf8').trim();
  metadata.set('authorization', `Bearer ${token}`);
  const { MATTING_NODE_PORT, MATTING_NODE_HTTP_PORT } = service.env;
  const address = `127.0.0.1:${MATTING_NODE_PORT}`;
  const client = new MatteServiceClient(address, credentials.createInsecure());
  const getNodeInfo = promisify(client.getNodeInfo.bind(client)) as unknown as (
    ...args: [object, Metadata]
  ) => Promise<GetNodeInfoResponse>;
  const info = await getNodeInfo({}, metadata);
  t.is(info.commercialUseRequired, 'weights');
  t.deepEqual(info.plans, ['permissive']);
  for (const { licence } of info.models) t.is(licence?.weights?.commercialUse, 'yes');
  const page = await fetch(`http://127.0.0.1:${MATTING_NODE_HTTP_PORT}/info`);
  const shown = (await page.json()) as GetNodeInfoResponse;
  t.deepEqual(
    shown.models.map(({ licence }) => licence),
    info.models.map(({ licence }) => licence),
  );
  for (const asked of [{ plan: 'standard' }, { plan: 'fast' }, { model: 'isnet' }]) {
    const call = client.matte(metadata);
    const value = MatteHeader.create({ contentLength: 5, ...asked });
    const ended = new Promise<ServiceError>(resolve => call.once('error', resolve));
    call.resume().write({ message: { $case: 'header', value } });
    const code = (await ended).metadata.get('matting-error-code')[0];
    t.is(code, 'NODE_INCAPABLE', JSON.stringify(asked));
  }
  client.close();
  await service.close();
});
