import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** nginx's status for a caller who closed the connection before the answer's head was sent. */
const LEFT_BEFORE = 499;
/** Node, the body's readers and the waiters add about ten. More would be a leak. */
const LISTENERS_MAX = 20;

interface AnswerEnd {
  /** 499 if the caller left before anything was sent. */
  readonly status: number;
  readonly left?: true;
}

type Note = (request: FastifyRequest, reply: FastifyReply, end: AnswerEnd) => void;

/** Fastify's onResponse misses callers who left before the end. */
export function onAnswerEnd(app: FastifyInstance, note: Note): void {
  const noted = new WeakSet<FastifyRequest>();
  const noteOnce = (request: FastifyRequest, reply: FastifyReply) => {
    if (noted.has(request)) return;
    noted.add(request);
    const left = !reply.raw.writableFinished;
    const status = left && !reply.raw.headersSent ? LEFT_BEFORE : reply.statusCode;
    note(request, reply, { status, ...(left && { left }) });
  };
  app.addHook('onRequest', (request, reply, done) => {
    reply.raw.setMaxListeners(LISTENERS_MAX);
    // Runs before other listeners, because the request's span ends in one of them.
    reply.raw.prependOnceListener('close', () => noteOnce(request, reply));
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    noteOnce(request, reply);
    done();
  });
}
