import { type MetricSet, seconds } from '@matting/program/metric-set.ts';
import { WITHHELD_REASONS } from './mails/messages.ts';
import { MAIL_ATTEMPT_OUTCOMES } from './mails/send-mails.ts';
import { NOTIFICATION_OUTCOMES } from './orders/receive-payment.ts';

export type PortalMetrics = ReturnType<typeof portalMetrics>;

interface Sources {
  readonly mailsWaiting: () => Promise<{ readonly count: number; readonly oldestMs: number }>;
}

export function portalMetrics(metrics: MetricSet, { mailsWaiting }: Sources) {
  const mails = metrics.reading('the database', mailsWaiting);
  metrics.gauge(
    'matting_control_mails_waiting',
    'Mails that wait for the mail server',
    mails(({ count }) => count),
  );
  metrics.gauge(
    'matting_control_mails_oldest_due_seconds',
    'Since when the oldest was to be sent, however often it was tried',
    mails(({ oldestMs }) => seconds(oldestMs)),
  );
  return {
    mailAttempted: metrics.countedBy(
      'matting_control_mail_attempts_total',
      'Attempts to hand mails to the mail server by how they ended',
      { outcome: MAIL_ATTEMPT_OUTCOMES },
    ),
    messageWithheld: metrics.countedBy(
      'matting_control_messages_withheld_total',
      'Mails, and events of accounts, not sent because as many were sent today as may be',
      { reason: WITHHELD_REASONS },
    ),
    balanceNotified: metrics.counted(
      'matting_control_low_balances_told_total',
      'Thresholds of balances that owners were told of from here',
    ),
    paymentNotified: metrics.countedBy(
      'matting_control_payment_notifications_total',
      'Proven notifications of payments, by what became of them',
      { outcome: NOTIFICATION_OUTCOMES },
    ),
  };
}
