import test from 'ava';
import {
  type AlertState,
  alertStep,
  lowBalanceBody,
  TOLD_AGAIN_MS,
  thresholdsOf,
} from '../../../src/domain/account/balance-alerts.ts';
import { lowBalanceMail } from '../../../src/domain/account/balance-mail.ts';

const NOW = 1_800_000_000_000;
const told = (agoMs: number, credits: number): AlertState => ({
  threshold: 10,
  told: { atMs: NOW - agoMs, credits },
});
const has = (available: number, reserved = 0) => ({ available, reserved });

test('a threshold is told at it and below, and armed above it', t => {
  const armed: AlertState = { threshold: 10, told: null };
  t.is(alertStep(armed, has(11), NOW), 'none');
  t.is(alertStep(armed, has(10), NOW), 'tell');
  t.is(alertStep(armed, has(0), NOW), 'tell');
  t.is(alertStep(told(5, 10), has(10), NOW), 'none');
  t.is(alertStep(told(5, 10), has(11), NOW), 'arm', 'credits were added');
  t.is(alertStep(told(5, 12), has(11, 1), NOW), 'none', 'those of a job came back');
  t.is(alertStep(told(TOLD_AGAIN_MS, 12), has(11, 1), NOW), 'arm');
  t.is(alertStep({ threshold: 0, told: null }, has(0, 5), NOW), 'tell');
});

test('thresholds are read from what people type', t => {
  t.deepEqual(thresholdsOf(['5', ' 100', '', '5']), [100, 5]);
  t.deepEqual(thresholdsOf([]), []);
  t.is(thresholdsOf(['5', 'x']), undefined);
});

test('what is told names the account, the threshold and what is left', t => {
  const low = {
    accountId: 'id',
    accountName: 'Shop\r\nBcc: x@y.test',
    threshold: 2000,
    balances: has(1234, 5),
    atMs: NOW,
  };
  const { data, timestamp, event_id } = JSON.parse(lowBalanceBody('an-event', low));
  t.is(event_id, 'an-event');
  t.is(timestamp, new Date(NOW).toISOString());
  t.deepEqual(data.credits, { available: 1234, reserved: 5 });
  for (const language of ['en', 'zh-CN', null]) {
    const { subject, text } = lowBalanceMail(low, language, 'https://m.example/account');
    t.notRegex(subject, /[\r\n]/, 'no header is added');
    t.regex(subject, /1,234/);
    t.regex(text, /2,000/);
    t.regex(text, /https:\/\/m\.example\/account\/credits/);
  }
});
