import { FIELDS_MAX } from '@matting/http/body-fields.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { parseForm } from './visit.ts';

test('a form of the account area has a bound of its fields, empty ones too', t => {
  for (const pair of ['', 'a', 'a=', 'a=b', '=']) {
    const form = (count: number) =>
      Buffer.from(Array.from({ length: count }, () => pair).join('&'));
    throwsWith(t, () => parseForm(form(FIELDS_MAX + 1)), { kind: 'badForm' }, pair);
    parseForm(form(FIELDS_MAX));
  }
});

test('a form of the account area has a bound of marks on one letter', t => {
  const form = (marks: number) => Buffer.from(`a=e${'\u0301\u0316'.repeat(marks / 2)}`);
  throwsWith(t, () => parseForm(form(32)), { kind: 'badForm' });
  t.is(
    parseForm(form(30)).text('a'),
    `\u00e9${'\u0316'.repeat(15)}${'\u0301'.repeat(14)}`.normalize('NFC'),
  );
  t.is(parseForm(Buffer.from('a=Zo%C3%AB e\u0301 ร้าน कि')).text('a'), 'Zoë é ร้าน कि');
});
