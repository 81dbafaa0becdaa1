import ava from 'ava';
import { hostLabel } from './host-label.ts';

const LONG = 'background-removal-matting-inference-node-production-eu-';
const NAMES: readonly [what: string, one: string, other: string][] = [
  ['at their end', `${LONG}ab-x29kq`, `${LONG}ab-p7ztw`],
  ['in the last of 58 characters', `${LONG}abc`, `${LONG}abd`],
  ['in a character that is replaced', 'node-ü', 'node-ö'],
  ['in a blank that is replaced', 'node 1', 'node-1'],
  ['behind 253 characters', `${'a'.repeat(253)}1`, `${'a'.repeat(253)}2`],
];
for (const [what, one, other] of NAMES) {
  ava(`hosts whose names differ ${what} have labels that differ`, t => {
    for (const name of [one, other]) {
      t.regex(hostLabel(58, name), /^[A-Za-z0-9._-]{1,58}$/);
      t.is(hostLabel(58, name), hostLabel(58, name));
    }
    t.not(hostLabel(58, one), hostLabel(58, other));
  });
}

ava('a short name is its own label', t => {
  for (const name of ['node-1', 'gpu_a.shop.example', 'a'.repeat(58)])
    t.is(hostLabel(58, name), name);
});
