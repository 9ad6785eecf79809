"""LangChain's agent, which is a graph of LangGraph, with its packages for OpenAI and Anthropic."""

from given_runs import QUESTIONS, SYSTEM, run_all, weather
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI


def model_for(api):
    if api == "messages":
        return ChatAnthropic(model="claude-sonnet-5")
    return ChatOpenAI(model="gpt-5", use_responses_api=api == "responses")


def ask(agent, messages, is_streamed):
    if not is_streamed:
        return agent.invoke({"messages": messages})["messages"], 0
    num_pieces = 0
    for mode, said in agent.stream({"messages": messages}, stream_mode=["messages", "values"]):
        if mode == "values":
            messages = said["messages"]
        else:
            num_pieces += said[0].type == "AIMessageChunk" and bool(said[0].text)
    return messages, num_pieces


def talk(api, is_streamed):
    agent = create_agent(model_for(api), [weather], system_prompt=SYSTEM)
    messages, answers, num_pieces = [], [], 0
    for question in QUESTIONS:
        messages, num = ask(agent, [*messages, {"role": "user", "content": question}], is_streamed)
        answers.append(str(messages[-1].text))
        num_pieces += num
    return answers, num_pieces


run_all(talk)
