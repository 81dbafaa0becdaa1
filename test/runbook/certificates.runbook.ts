import { mkdtempSync, rmSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { at } from '../support/at.ts';
import { TestAuthority } from '../support/certificates.ts';
import { Installation } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const DAY_MS = 86_400_000;
const GOOD_DAYS = 100;
const DOCTOR = 'matting doctor';
const NODES_LIST = 'matting nodes list';

const authority = new TestAuthority('runbook', GOOD_DAYS * DAY_MS);
const folder = mkdtempSync(path.join(tmpdir(), 'matting-certificates-'));
const place = (name: string) => path.join(folder, name);
const NODE_TLS = {
  MATTING_TLS_CERT_FILE: place('cert.pem'),
  MATTING_TLS_KEY_FILE: place('key.pem'),
};

const service = new Installation();
const procedure = proceduresOn(service, test);

/** By docs/operate.md: write a new file, then rename it. */
async function renew(days: number): Promise<void> {
  const { cert, key } = authority.issue('node', ['127.0.0.1'], days * DAY_MS);
  for (const [name, text] of [
    ['cert.pem', cert],
    ['key.pem', key],
  ] as const) {
    await writeFile(place(`${name}.new`), text);
    await rename(place(`${name}.new`), place(name));
  }
}

test.before(async () => {
  await writeFile(place('ca.pem'), authority.cert);
  await renew(GOOD_DAYS);
});
service.use(test, {
  env: { MATTING_TLS_SERVER_CA_FILE: place('ca.pem'), MATTING_NO_NODE_GRACE_MS: '600000' },
  nodes: 1,
  nodeEnv: NODE_TLS,
});
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

procedure('MattingCertificateExpiresSoon', async (page, t) => {
  const files = await service.prometheus.query('matting_control_tls_expires_timestamp_seconds');
  t.deepEqual(
    files.map(({ metric }) => metric.file),
    ['MATTING_TLS_SERVER_CA_FILE'],
  );
  await renew(10);
  const [firing] = await page.fires();
  t.deepEqual([firing?.job, firing?.file], ['matting-node', 'MATTING_TLS_CERT_FILE']);
  await at(service.nodes, 0).line('a certificate expires soon; renew it', {
    file: 'MATTING_TLS_CERT_FILE',
  });
  // The node has no model, of which this command complains too.
  const onNode = await service.run(`${DOCTOR} --node`, NODE_TLS);
  t.regex(onNode.out, /^warning +TLS +a certificate expires soon.*CERT_FILE.*daysLeft 9$/m);
  const { out } = await page.run(DOCTOR);
  t.regex(out, /TLS +MATTING_TLS_SERVER_CA_FILE expires in/);
  await renew(GOOD_DAYS);
  await page.isOver();
});

procedure('MattingCertificateExpiresNow', async (page, t) => {
  const [node] = service.nodes;
  await renew(-1);
  await node?.restart();
  const [firing] = await page.fires();
  t.deepEqual([firing?.job, firing?.file], ['matting-node', 'MATTING_TLS_CERT_FILE']);
  await service.until('no control plane reaches the node', async () => {
    const { out } = await page.run(NODES_LIST);
    return /^node-0 +unreachable .* its certificate has expired$/m.test(out);
  });
  const jobId = await service.submit();
  const { out } = await page.run(DOCTOR, {}, { code: 1 });
  t.regex(
    out,
    /^failure +nodes +none takes images: node-0 \(its certificate has expired\); jobs wait/m,
  );
  await renew(GOOD_DAYS);
  await node?.line('TLS files changed; new connections use them');
  t.is((await service.final(jobId)).status, 'succeeded');
  await page.isOver();
  await service.ready();
  t.regex((await page.run(NODES_LIST)).out, /^node-0 +live /m);
});
