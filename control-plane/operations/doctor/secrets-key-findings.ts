/** Whether the key that this control plane would start with opens what the database holds. */
import path from 'node:path';
import { type Finding, failure, ok, warning } from '#program/doctor/findings.ts';
import { SecretBox } from '../../core/secrets/secret-box.ts';
import {
  judgeSecretsKey,
  readSecretsKey,
  SECRETS_KEY_FILE,
} from '../../core/secrets/secrets-key.ts';
import type { CoreSettings } from '../../core/settings.ts';
import type { StoresWithoutEnds } from '../../core/stores.ts';

const SUBJECT = 'secrets';
const CHANGING = 'docs/operations.md, "Changing the secrets key"';

export async function secretsKeyFindings(
  { secretsCanary, outbox }: Pick<StoresWithoutEnds, 'secretsCanary' | 'outbox'>,
  { secretsKey: given, secretsKeyPrevious, dataDir }: CoreSettings,
): Promise<readonly Finding[]> {
  const canary = await secretsCanary.find();
  const key = given ?? (await readSecretsKey(dataDir));
  const file = path.join(dataDir, SECRETS_KEY_FILE);
  if (key === undefined) {
    const found = `there is no key: neither MATTING_SECRETS_KEY nor ${file}`;
    // The first start makes one, where nothing was sealed with another.
    if (canary === undefined) return [ok(SUBJECT, `${found}; the first start makes one`)];
    return [failure(SUBJECT, found, 'bring back the one this database was used with')];
  }
  const keys = [key, ...(secretsKeyPrevious === undefined ? [] : [secretsKeyPrevious])];
  const verdict = canary === undefined ? 'same' : judgeSecretsKey(canary, key, secretsKeyPrevious);
  if (verdict === 'other') {
    const found = 'MATTING_SECRETS_KEY is not the key this database was last used with';
    return [failure(SUBJECT, found, `no control plane starts with it: ${CHANGING}`)];
  }
  const unopened = await outbox.countSealedWithOthers(keys.map(one => new SecretBox(one).keyId));
  if (unopened > 0) {
    const found = `${unopened} notifications wait whose secrets no key here opens`;
    return [warning(SUBJECT, found, `set MATTING_SECRETS_KEY_PREVIOUS: ${CHANGING}`)];
  }
  return [ok(SUBJECT, 'the key opens what the database holds')];
}
