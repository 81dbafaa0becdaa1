import ava from 'ava';
import { CORE_SUITE } from './core-suite.ts';
import { loseAnswers } from './losing-answers.ts';

loseAnswers(ava, CORE_SUITE);
