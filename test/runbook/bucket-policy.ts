/** What the bucket's user may do, as docs/security.md gives it. */
import assert from 'node:assert/strict';
import { codeOf, readPage } from './runbook-page.ts';

/** Of the service's objects, in the policy and in its URL. */
export const PREFIX = 'production';

interface Statement {
  readonly Action: readonly string[];
  readonly Resource: string;
}
export interface BucketPolicy {
  readonly Version: string;
  readonly Statement: readonly Statement[];
}

/** The page's, for this bucket and PREFIX. */
export function policyFor(bucket: string): BucketPolicy {
  const section = readPage('docs/security.md').split('\n### The bucket user\n')[1] ?? '';
  const [own = ''] = section.split(/\n#{2,3} /);
  const json = codeOf(own).filter(line => /^[{}\]]/.test(line));
  assert.ok(json.length > 0, 'docs/security.md has no policy');
  const text = json.join('\n').replaceAll('bucket/prefix', `${bucket}/${PREFIX}`);
  return JSON.parse(text.replaceAll(':::bucket"', `:::${bucket}"`));
}

/** It gives every right but this. */
export const without = (policy: BucketPolicy, action: string): BucketPolicy => ({
  ...policy,
  Statement: policy.Statement.map(each => ({
    ...each,
    Action: each.Action.filter(name => name !== action),
  })).filter(({ Action }) => Action.length > 0),
});
