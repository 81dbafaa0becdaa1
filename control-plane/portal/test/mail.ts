/** A mail server that nobody asks: what goes to it waits in the outbox. */
export const SMTP = { smtpUrl: 'smtps://mail.example', from: 'matting@example.org' };
