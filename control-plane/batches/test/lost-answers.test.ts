/** Every method of batches that changes something, whose answer is lost or that comes late. */
import { loseAnswers } from '@matting/core/test/losing-answers.ts';
import ava from 'ava';
import { BATCH_SUITE } from './batch-suite.ts';

loseAnswers(ava, BATCH_SUITE);
