import assert from 'node:assert/strict';
import test from 'ava';
import {
  dayOf,
  dayOfIso,
  isoOfDay,
  monthStartOf,
  usageQuestionOf,
} from '../../../src/domain/account/usage.ts';

test('days are those of the calendar, UTC', t => {
  for (const iso of ['1970-01-01', '2024-02-29', '2026-11-21', '9999-12-31']) {
    const day = dayOfIso(iso);
    assert.ok(day !== undefined);
    t.is(isoOfDay(day), iso);
    t.is(dayOf(Date.parse(`${iso}T23:59:59.999Z`)), day);
  }
  for (const text of ['2023-02-29', '2026-13-01', '2026-1-1', '0000-00-00', '1969-12-31', '']) {
    t.is(dayOfIso(text), undefined, text);
  }
  t.is(isoOfDay(monthStartOf(dayOf(Date.parse('2026-02-28T12:00:00Z')))), '2026-02-01');
});

test('a question without words is of thirty days, by day', t => {
  const today = dayOf(Date.parse('2026-11-21T12:00:00Z'));
  t.deepEqual(usageQuestionOf({}, today), { from: today - 29, to: today, group: 'day' });
  const month = usageQuestionOf({ to: '2026-03-31', group: 'key' }, today);
  t.true('group' in month && isoOfDay(month.from) === '2026-03-02');
  const first = usageQuestionOf({ to: '1970-01-05' }, today);
  t.deepEqual(first, { from: 0, to: 4, group: 'day' });
});
